#include "session/run_so_far.h"

#include <vector>

#include "base/check.h"
#include "engine/config/yaml.h"
#include "models/linear/precision.h"

namespace assay {
namespace {

std::optional<std::string> newest_checkpoint(Checkpoints& checkpoints) {
  const std::optional<std::string> newest = checkpoints.newest();
  const std::vector<std::string> all = checkpoints.all();
  if (newest || all.empty()) return newest;
  throw UserError(strprintf("none of the %zu checkpoints of the run is valid; %s: %s", all.size(),
                            all.back().c_str(), checkpoint_problem(all.back()).c_str()),
                  "train in another folder (--run), or start over (--fresh), which deletes them");
}

}  // namespace

RunSoFar::RunSoFar(Checkpoints& checkpoints) : checkpoint_(newest_checkpoint(checkpoints)) {
  if (checkpoint_) state_ = load_state(*checkpoint_);
}

Config RunSoFar::configuration() const {
  return parse_run_config_text(state_.config_yaml, *checkpoint_ + "/state.json", *checkpoint_);
}

// That of the folder, and that of the steps made: only the first can be edited by hand, which is
// said before `now` is compared with it. An import, without a step, may be edited.
void RunSoFar::require_configuration(const RunDir& dir, const Config& now) const {
  if (steps() > 0) require_unedited(dir.path(), configuration(), *dir.previous(), steps());
  require_same_run(dir, now, steps());
  if (steps() > 0) require_unedited(dir.path(), configuration(), now, steps());
}

std::optional<PrecisionConfig> RunSoFar::other_precision(const Session& now) const {
  if (!checkpoint_) return std::nullopt;
  PrecisionConfig then = configuration().precision;
  // Import leaves `auto` open, and a CPU simulates all products.
  const bool same_products = then.products == ProductsMode::kAuto || !now.device.gpu;
  if (same_products) then.products = now.config.precision.products;
  return then == now.config.precision ? std::nullopt : std::optional(then);
}

// Another precision would only be written into the configuration of the finished run.
void RunSoFar::require_precision(const RunDir& dir, const Session& now) const {
  if (steps() == 0 || steps() < now.config.run.steps) return;
  const std::optional<PrecisionConfig> then = other_precision(now);
  if (!then) return;
  throw UserError(
      strprintf("%s has made its %ld steps in %s: there is none left to make in %s",
                dir.path().c_str(), long(steps()), precision_text(*then).c_str(),
                precision_text(now.config.precision).c_str()),
      "give the precision that it was trained in (--set precision.recipe=" + then->recipe +
          "; what auto is depends on the machine), or train in another --run");
}

}  // namespace assay
