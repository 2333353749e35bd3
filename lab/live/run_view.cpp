#include "lab/live/run_view.h"

#include "base/check.h"
#include "lab/router/analysis.h"
#include "lab/router/verdict.h"

namespace assay {
namespace {

std::optional<double> last_of(const TelemetryReader& telemetry, const char* name) {
  const std::optional<StepValue> last = telemetry.last_scalar(name);
  if (!last) return std::nullopt;
  return last->value;
}

// The verdict of `assay router`, from the layers' measures alone: its advice needs more, and is not
// shown.
RouterView router_view(const RunRecord& run, int64_t logged) {
  const MoeConfig& moe = *run.config.model.moe;
  RouterAnalysis analysis;
  analysis.experts = moe.experts;
  analysis.top_k = moe.top_k;
  analysis.window = run.config.telemetry.window;
  analysis.logged = logged;
  analysis.last_step = run.steps_done;
  analysis.planned_steps = run.config.run.steps;
  for (const LayerHealth& l : run.health->layers) {
    RouterLayer layer;
    layer.layer = l.layer;
    layer.saturated_at = l.saturated_at;
    layer.max_load_norm = l.max_load_norm;
    layer.active_norm = l.active_norm;
    layer.cv_norm = l.cv_norm;
    layer.entropy_norm = l.entropy_norm;
    analysis.layers.push_back(layer);
  }
  return {.experts = moe.experts,
          .window = analysis.window,
          .verdict = router_verdict(analysis, run.config).state,
          .layers = run.health->layers};
}

void read_numbers(RunView& view) {
  const RunRecord run = read_run(view.status.path);
  const TelemetryReader telemetry(view.status.path + "/telemetry.db");
  view.train_loss_nats = telemetry.scalar("train_loss_nats");
  view.val_loss_nats = run.val_loss_nats;
  view.lr = last_of(telemetry, "lr");
  view.gradient_norm = last_of(telemetry, "gradient_norm");
  view.tokens_per_s = last_of(telemetry, "tokens_per_s");
  view.mfu_share = last_of(telemetry, "mfu_share");
  if (run.health) view.router = router_view(run, int64_t(view.train_loss_nats.size()));
}

}  // namespace

RunView view_run(const std::string& path, Seen seen) {
  RunView view{.status = run_status(path),
               .seen = seen,
               .lr = {},
               .gradient_norm = {},
               .tokens_per_s = {},
               .mfu_share = {},
               .router = {}};
  if (view.status.step == 0) return view;
  try {
    read_numbers(view);
  } catch (const UserError& error) {
    view.status.state = RunState::kUnreadable;
    view.status.reason = error.what();
    view.status.hint = error.hint();
  }
  return view;
}

}  // namespace assay
