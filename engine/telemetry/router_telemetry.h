// What the routers did at a logged step, one row a MoE layer: measures of the step's load and of
// the last W logged steps, dead experts, gate entropy, margin, lead, overlap with the last probe;
// and whether the rule of telemetry.collapse_stop holds. Formulas: docs/numerics.md. Memory is
// taken at construction; observe() allocates nothing.
#pragma once

#include <span>
#include <vector>

#include "engine/model.h"
#include "engine/telemetry/collapse_guard.h"
#include "engine/telemetry/router_stats.h"
#include "engine/telemetry/schema.h"

namespace assay {

struct RouterProbe {
  TokenBatch tokens;   // the fixed tokens, whole sequences
  int64_t every = 10;  // logged steps
};

class RouterTelemetry {
 public:
  // The model is bound. layers: from Model::router_layers().
  RouterTelemetry(Model& model, const TelemetryConfig& config, const RouterProbe& probe);

  // A logged step of the past, for a run that resumes: windows and dead experts go on where they
  // were. counts: (E) a layer, in order.
  void replay(const std::vector<std::vector<uint32_t>>& counts);
  // Logged steps of the past that no window reaches: they only count. Before the first replay().
  void skip(int64_t logged_steps) { logged_ += logged_steps; }

  // What the next probe is compared with, (layers, probe tokens, K); empty before the first probe.
  std::span<const int32_t> last_probe() const;
  // Of a run that resumes; choices of other tokens or another K are left out.
  void set_last_probe(std::span<const int32_t> choices);

  // Once a logged step, after the step: fills one row a MoE layer.
  void observe(Exec on, Model& model, std::vector<RouterRow>& rows);

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
  int64_t top_k_ = 0;                  // one for all layers of a model
  std::vector<int32_t> before_, now_;  // (layers, probe tokens * K)
  bool probed_ = false;
  CollapseGuard guard_;
};

}  // namespace assay
