// Processes (ranks) that exchange memory. A group moves bytes and adds integers; sums of floats
// over ranks are made by ops of this project in a fixed order, so that no bit depends on the
// transport.
//
// Every call is collective: all members make the same calls, with the same sizes, in the same
// order. `lane` is where the call is queued, a stream of communication; without a GPU the call is
// done when it returns.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

class Group {
 public:
  Group(int size, int rank);
  virtual ~Group() = default;
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  int size() const { return size_; }
  int rank() const { return rank_; }

  // all (size, bytes): `mine` of every member, in the order of ranks. In place: mine is this rank's
  // row of `all`.
  void all_gather(Exec lane, void* all, const void* mine, size_t bytes);
  // to, from (size, bytes): row r of `from` goes to rank r; row r of `to` came from rank r.
  void all_to_all(Exec lane, void* to, const void* from, size_t bytes);

  // Bytes of one buffer. Empty runs are legal.
  struct Run {
    size_t offset = 0, bytes = 0;
  };
  // received[r] of `to` comes from rank r, sent[r] of `from` goes to rank r. Two members agree on
  // the bytes between them. Runs of `to` do not overlap each other, nor runs of `from`, except that
  // what a rank keeps may stay where it is.
  struct Exchange {
    void* to = nullptr;
    std::vector<Run> received;  // (size)
    const void* from = nullptr;
    std::vector<Run> sent;  // (size)
  };
  void all_to_all_v(Exec lane, const Exchange& exchange);

  // x becomes the sum over the members, modulo 2^64: the same in any order.
  void sum_integers(Exec lane, View<int64_t, 1> x);

  // `told` is called before each call, with the call's number, from 1.
  void tell_calls(std::function<void(uint64_t)> told) { told_ = std::move(told); }

  // Of this rank so far, what it kept for itself excluded: bytes for each other member, as calls
  // describe them (a transport may send more or fewer).
  uint64_t bytes_sent() const { return bytes_sent_; }
  // The time that this rank has spent inside calls: waiting for the others and moving bytes. For a
  // group of GPU memory it is only the time to queue them.
  std::chrono::nanoseconds time_in_calls() const { return time_in_calls_; }
  // Number of calls, and a hash of their kinds and sizes: equal on all members as long as they make
  // the same calls. all_to_all_v enters the hash without its bytes, which differ by rank.
  uint64_t calls() const { return calls_; }
  uint64_t calls_hash() const { return calls_hash_; }

 protected:
  virtual void gather(Exec lane, void* all, const void* mine, size_t bytes) = 0;
  virtual void exchange_rows(Exec lane, void* to, const void* from, size_t bytes) = 0;
  virtual void exchange_runs(Exec lane, const Exchange& exchange) = 0;
  virtual void add_integers(Exec lane, View<int64_t, 1> x) = 0;

 private:
  enum class Call : uint64_t { kAllGather = 1, kAllToAll, kAllToAllV, kSumIntegers };
  void count(Call call, uint64_t size, uint64_t sent);
  class Timed;

  const int size_, rank_;
  uint64_t bytes_sent_ = 0, calls_ = 0, calls_hash_ = 0;
  std::chrono::nanoseconds time_in_calls_{0};
  std::function<void(uint64_t)> told_;
};

}  // namespace assay
