// Work queued on a context's stream, recorded once and replayed as one launch. Arguments and
// addresses are recorded with it, so the data of a replay must be at the recorded addresses.
#pragma once

#include <memory>
#include <optional>

#include "cuda/context.h"
#include "cuda/exec.h"
#include "cuda/profile.h"

namespace assay::gpu {

class Graph {
 public:
  // Records what `calls` queues, without running it. `calls` must not wait, allocate, or copy from
  // or to host memory that is not pinned.
  static Graph capture(const Context& on, CallRef calls);
  void replay(const Context& on) const;

 private:
  using Recording = std::unique_ptr<void, void (*)(void*)>;
  explicit Graph(Recording recording) : recording_(std::move(recording)) {}
  Recording recording_;
};

// True if calls on `on` are to be recorded: on a GPU, unless each launch is waited for, or timed by
// waits.
bool records(Exec on);

// Runs calls that queue the same work each time. The first time they run directly, which loads
// kernels and chooses algorithms; the second time they are recorded; from then on the recording is
// replayed. Key holds every host value that the calls use, except addresses that do not change; a
// different key, or profile by events, starts over. With such a profile each replay is waited for.
template <typename Key>
class Replayed {
 public:
  template <typename Calls>
  void run(Exec on, const Key& key, const Calls& calls) {
    if (!records(on)) return calls();
    EventSpans* const spans = on.profile != nullptr ? on.profile->by_events() : nullptr;
    const int64_t profile = spans != nullptr ? spans->id() : 0;
    if (key_ != key || profile_ != profile) {
      graph_.reset();
      key_ = key;
      profile_ = profile;
      return calls();
    }
    if (!graph_) {
      if (spans != nullptr) spans->begin_recording();
      graph_ = Graph::capture(*on.gpu, calls);
      if (spans != nullptr) recorded_ = spans->end_recording();
    }
    graph_->replay(*on.gpu);
    if (spans != nullptr) on.profile->add_replay(on, recorded_);
  }

 private:
  std::optional<Key> key_;  // of the latest calls that ran or were recorded
  int64_t profile_ = 0;     // of its events; 0: without
  std::optional<Graph> graph_;
  std::vector<EventSpan> recorded_;  // of graph_
};

}  // namespace assay::gpu
