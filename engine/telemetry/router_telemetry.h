// Router measures of a logged step, one row per MoE layer: the step's load and that of the last W
// logged steps, dead experts, gate entropy, margin, lead, overlap with the last probe. Also feeds
// the guard of telemetry.collapse_stop. Formulas: docs/numerics.md. Memory is allocated at
// construction; observe() allocates nothing.
#pragma once

#include <span>
#include <vector>

#include "engine/model.h"
#include "engine/telemetry/collapse_guard.h"
#include "engine/telemetry/router_stats.h"
#include "engine/telemetry/schema.h"

namespace assay {

// Aggregates over the layers of one step.
struct RouterAggregate {
  double cv_mean = 0, cv_std = 0;  // population std over layers
  double entropy_mean = 0, entropy_min = 0;
  double max_load_mean = 0, max_load_max = 0;
};
RouterAggregate aggregate(std::span<const RouterRow> layers);

struct RouterProbe {
  TokenBatch tokens;   // the fixed tokens, whole sequences
  int64_t every = 10;  // logged steps between probes
};

class RouterTelemetry {
 public:
  // The model must be bound.
  RouterTelemetry(Model& model, const Config& config, const RouterProbe& probe);

  // Replays a logged step of a resumed run, to restore windows and dead experts. counts: (E) per
  // MoE layer, in order.
  void replay(const std::vector<std::vector<uint32_t>>& counts);
  // Counts logged steps before the window. Call before the first replay().
  void skip(int64_t logged_steps) { logged_ += logged_steps; }

  // The choices that the next probe is compared with, (layers, probe tokens, K); empty before the
  // first probe.
  std::span<const int32_t> last_probe() const;
  // Restores the last probe of a resumed run; choices of another size are ignored.
  void set_last_probe(std::span<const int32_t> choices);

  // Call after each logged step: fills one row per MoE layer.
  void observe(Exec on, Model& model, int64_t step, std::vector<RouterRow>& rows);

  // Where ranks compute a pass together: whether the next observe() runs the model on the probe's
  // tokens. The others, which do not observe, then call join_probe() meanwhile.
  bool probe_due() const { return !layers_.empty() && logged_ % probe_.every == 0; }
  void join_probe(Exec on, Model& model);

  CollapseGuard& guard() { return guard_; }

 private:
  struct Layer {
    Layer(int64_t experts, int64_t window);
    DeadFor dead;
    std::vector<int64_t> window_sum;  // (E)
    std::vector<uint32_t> history;    // (W, E) ring
  };
  void add(Layer& layer, View<const int64_t, 1> counts);
  void probe_overlap(Exec on, Model& model, std::vector<RouterRow>& rows);

  int64_t window_;
  RouterProbe probe_;
  int64_t logged_ = 0;
  std::vector<Layer> layers_;
  int64_t top_k_ = 0;                  // the same in all layers of a model
  std::vector<int32_t> before_, now_;  // (layers, probe tokens * K)
  bool probed_ = false;
  CollapseGuard guard_;
};

}  // namespace assay
