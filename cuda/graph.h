// What is queued on a context's stream, recorded once and replayed as one launch. Arguments and
// addresses are recorded with it: what a replay is to work on lies where the recording's work lay.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "cuda/context.h"
#include "cuda/exec.h"

namespace assay::gpu {

class Graph {
 public:
  // Nothing runs. `calls` may not wait, allocate, or copy from or to host memory that is not
  // pinned.
  static Graph capture(const Context& on, const std::function<void()>& calls);
  void replay(const Context& on) const;

 private:
  using Recording = std::unique_ptr<void, void (*)(void*)>;
  explicit Graph(Recording recording) : recording_(std::move(recording)) {}
  Recording recording_;
};

// Are calls on `on` worth recording? Not on the CPU, and not where each call is waited for or
// timed.
bool records(Exec on);

// Calls that queue the same each time. The first time they run as they are, which loads kernels and
// chooses algorithms; the second they are recorded; then replayed. A Key holds all that they take
// from the host besides addresses that stay: with another one it begins again.
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
  std::optional<Key> key_;  // of the last calls that ran or were recorded
  std::optional<Graph> graph_;
};

}  // namespace assay::gpu
