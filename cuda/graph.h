// Work queued on a context's stream, recorded once and replayed as one launch. Arguments and
// addresses are recorded with it, so the data of a replay must be at the recorded addresses.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "cuda/context.h"
#include "cuda/exec.h"

namespace assay::gpu {

class Graph {
 public:
  // Records what `calls` queues, without running it. `calls` must not wait, allocate, or copy from
  // or to host memory that is not pinned.
  static Graph capture(const Context& on, const std::function<void()>& calls);
  void replay(const Context& on) const;

 private:
  using Recording = std::unique_ptr<void, void (*)(void*)>;
  explicit Graph(Recording recording) : recording_(std::move(recording)) {}
  Recording recording_;
};

// True if calls on `on` are to be recorded: on a GPU, unless each launch is waited for or timed.
bool records(Exec on);

// Runs calls that queue the same work each time. The first time they run directly, which loads
// kernels and chooses algorithms; the second time they are recorded; from then on the recording is
// replayed. Key holds every host value that the calls use, except addresses that do not change; a
// different key starts over.
template <typename Key>
class Replayed {
 public:
  template <typename Calls>
  void run(Exec on, const Key& key, const Calls& calls) {
    if (!records(on)) return calls();
    if (key_ != key) {
      graph_.reset();
      key_ = key;
      return calls();
    }
    if (!graph_) graph_ = Graph::capture(*on.gpu, std::cref(calls));
    graph_->replay(*on.gpu);
  }

 private:
  std::optional<Key> key_;  // of the latest calls that ran or were recorded
  std::optional<Graph> graph_;
};

}  // namespace assay::gpu
