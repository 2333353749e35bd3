#include "lab/live/run_view.h"

#include "base/check.h"

namespace assay {
namespace {

std::optional<double> last_of(const TelemetryReader& telemetry, const char* name) {
  const std::optional<StepValue> last = telemetry.last_scalar(name);
  if (!last) return std::nullopt;
  return last->value;
}

RouterView router_view(const RunRecord& run) {
  return {.experts = run.config.model.moe->experts,
          .top_k = run.config.model.moe->top_k,
          .window = run.config.telemetry.window,
          .verdict = name_of(router_state(*run.health)),
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
  if (run.health) view.router = router_view(run);
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
