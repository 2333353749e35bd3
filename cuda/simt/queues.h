// Queues of operations, one for each stream, and the edges between them. Private to the streams of
// the SIMT emulator (cuda/simt/stream.h).
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "cuda/simt/stream.h"

namespace assay::simt {

// Streams are numbered here; 0 is the main one. A copy is a new run of the same work.
class Queues {
 public:
  void push(size_t stream, Operation operation);
  void edge(size_t later, size_t earlier);
  bool empty(size_t stream) const { return stream >= streams_.size() || streams_[stream].empty(); }
  bool empty() const;

  // Goes on with one operation or edge, the first in the order of the pace that can; false if none
  // can. What an operation throws ends the work: the caller drops the queues.
  bool go_on(Pace pace);

 private:
  enum class Kind { kOperation, kSetsEvent, kAwaitsEvent };
  struct Item {
    Kind kind;
    uint64_t place;  // in the order in which items were queued
    Operation operation = {};
    Poll poll = {};  // of an operation that has begun
    size_t event = 0;
  };
  enum class Step { kNone, kBegun, kDone };
  std::deque<Item>& of(size_t stream);
  std::vector<size_t> in_order(Pace pace) const;
  Step step(Item& item);

  std::vector<std::deque<Item>> streams_;
  std::vector<bool> events_;  // set or not
  uint64_t pushed_ = 0;
};

}  // namespace assay::simt
