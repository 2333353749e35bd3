#include "models/audit/branch.h"

#include <algorithm>

#include "base/check.h"
#include "base/step_count.h"
#include "engine/config/differences.h"
#include "engine/config/schedule.h"
#include "engine/trainer.h"
#include "models/audit/contract.h"
#include "models/audit/horizon.h"

namespace assay {

namespace {

void require_constant_rate(const BranchSteps& branch, const Schedule& trunk) {
  if (branch.step < trunk.warmup) {
    throw UserError(strprintf("step %ld is inside the warm-up of %ld steps", long(branch.step),
                              long(trunk.warmup)),
                    "branch after the warm-up");
  }
  if (branch.step <= trunk.decay_begin()) return;
  throw UserError(
      strprintf("step %ld is inside the trunk's own warm-down, which begins after step %ld",
                long(branch.step), long(trunk.decay_begin())),
      "branch before it, or train the trunk with a shorter warm-down");
}

// The branch's steps, under a contract as a share of its horizon `full`, and its landings.
void set_steps(Config& config, const BranchSteps& branch, int64_t full) {
  ContractConfig& contract = config.contract;
  const bool has_landings = contract.landings || contract.kind != ContractKind::kSteps;
  const bool is_whole = contract.horizon == 0 && contract.fraction == 1;
  config.run.steps = branch.steps;
  if (!has_landings && is_whole) return;
  if (branch.steps > full) {
    throw UserError(strprintf("the branch ends at step %ld, after the contract's horizon of %ld",
                              long(branch.steps), long(full)),
                    "branch earlier, or give a shorter warm-down");
  }
  std::vector<double> landings;
  for (const double share : landing_fractions(contract)) {
    if (fraction_of_steps(full, share) <= branch.step) landings.push_back(share);
  }
  contract.fraction = double(branch.steps) / double(full);
  landings.push_back(contract.fraction);
  if (has_landings) contract.landings = landings;
  if (takes_run_steps(contract.kind)) contract.horizon = full;
  resolve_steps(config);
  CHECK(config.run.steps == branch.steps, "branch of %ld steps became %ld", long(branch.steps),
        long(config.run.steps));
}

// The last steps of a recipe are in bf16.
void require_recipe(const Config& trunk, const Config& config, const BranchSteps& branch) {
  if (same_formats(trunk, config, branch.step)) return;
  throw UserError(
      strprintf("before the branch leaves the trunk at step %ld, its steps are in bf16 "
                "from step %ld on, those of the trunk from step %ld",
                long(branch.step), long(recipe_steps(config)), long(recipe_steps(trunk))),
      "branch earlier, with another warm-down, or give the trunk a smaller "
      "precision.bf16_tail");
}

}  // namespace

BranchSteps branch_from(int64_t step, double share) {
  BranchSteps branch{.step = step,
                     .steps = std::max<int64_t>(step, int64_t(double(step) / (1 - share)) - 1)};
  while (branch.steps - fraction_of_steps(branch.steps, share) < step) ++branch.steps;
  return branch;
}

BranchSteps branch_to(int64_t steps, double share) {
  return {.step = steps - fraction_of_steps(steps, share), .steps = steps};
}

double warmdown_share(const Config& config) {
  const Schedule schedule = make_schedule(config);
  return double(schedule.warmdown) / double(schedule.steps);
}

Config branch_config(const Config& trunk, const BranchSteps& branch) {
  const Schedule schedule = make_schedule(trunk);
  require_constant_rate(branch, schedule);
  Config config = trunk;
  config.schedule.warmup = schedule.warmup;
  config.schedule.warmup_fraction.reset();
  config.schedule.warmdown = branch.warmdown();
  config.schedule.warmdown_fraction.reset();
  set_steps(config, branch, horizon(trunk));
  require_recipe(trunk, config, branch);
  const auto differences = result_changing_differences(trunk, config, branch.step);
  CHECK(differences.empty(), "branch at step %ld: %s", long(branch.step),
        differences.front().text().c_str());
  return config;
}

}  // namespace assay
