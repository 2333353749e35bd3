#include "lab/live/run_view.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace assay {
namespace {

std::optional<double> last_of(const TelemetryReader& telemetry, const char* name) {
  const std::optional<StepValue> last = telemetry.last_scalar(name);
  if (!last) return std::nullopt;
  return last->value;
}

// NaN if the last logged step has none but an earlier one has: NaN is not recorded.
std::optional<double> of_last_step(const TelemetryReader& telemetry, const char* name) {
  const std::optional<StepValue> last = telemetry.last_scalar(name);
  if (!last) return std::nullopt;
  return last->step == telemetry.last_step() ? last->value : std::nan("");
}

RouterView router_view(const RunRecord& run) {
  return {.experts = run.config.model.moe->experts,
          .top_k = run.config.model.moe->top_k,
          .last = std::min(run.health->window, run.health->logged),
          .verdict = name_of(router_state(*run.health)),
          .layers = run.health->layers};
}

void read_numbers(const TelemetryReader& telemetry, RunView& view) {
  const RunRecord run = read_run(view.status.path, telemetry);
  view.train_loss_nats = telemetry.scalar("train_loss_nats");
  view.val_loss_nats = run.val_loss_nats;
  view.lr = last_of(telemetry, "lr");
  view.gradient_norm = of_last_step(telemetry, "gradient_norm");
  view.tokens_per_s = last_of(telemetry, "tokens_per_s");
  view.mfu_share = last_of(telemetry, "mfu_share");
  if (run.health) view.router = router_view(run);
}

}  // namespace

RunView view_run(const std::string& path, Seen seen, Wait wait) {
  RunView view{.status = run_status(path, wait),
               .seen = seen,
               .lr = {},
               .gradient_norm = {},
               .tokens_per_s = {},
               .mfu_share = {},
               .router = {}};
  if (view.status.step == 0) return view;
  try {
    read_numbers(TelemetryReader(telemetry_file(path), wait), view);
  } catch (const std::exception& error) {
    set_unreadable(error, view.status);
  }
  return view;
}

RunViews::RunViews(const std::vector<std::string>& runs)
    : runs_(runs), before_(runs.size()), seen_(runs.size(), Seen::kNever), views_(runs.size()) {}

void RunViews::read(Wait wait) {
  for (size_t i = 0; i < runs_.size(); ++i) {
    std::string now = run_fingerprint(runs_[i]);
    if (now == before_[i]) continue;
    views_[i] = view_run(runs_[i], seen_[i], wait);
    const RunStatus& status = views_[i].status;
    if (status.state != RunState::kMissing) seen_[i] = Seen::kBefore;
    before_[i] = status.read_failed ? "" : std::move(now);
  }
}

}  // namespace assay
