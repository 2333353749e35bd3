#include "lab/runs/contract_horizon.h"

#include <cmath>

#include "base/check.h"
#include "models/audit/contract.h"
#include "models/audit/horizon.h"

namespace assay {

int64_t contract_horizon(const RunRecord& run) {
  const ContractConfig& contract = run.config.contract;
  if (contract.kind == ContractKind::kActiveWidth || !horizon_is_known(run.config)) {
    return contract.horizon > 0 ? contract.horizon : run.config.run.steps;
  }
  return horizon(run.config, run.audit);
}

namespace {

// "1.44", and of many seconds all whole ones: "7312".
std::string seconds_text(double seconds) {
  return strprintf(seconds >= 100 ? "%.0f" : "%.3g", seconds);
}

}  // namespace

std::string missed_seconds_text(const RunRecord& run) {
  constexpr double kWithin = 0.2;
  const ContractConfig& contract = run.config.contract;
  const std::optional<double> spent = run.seconds_at(run.steps_done);
  const double planned = contract.step_seconds;
  if (contract.kind != ContractKind::kSeconds || planned <= 0 || !spent || run.steps_done == 0)
    return "";
  const double step = *spent / double(run.steps_done);
  if (std::abs(step - planned) <= kWithin * planned) return "";
  const bool measured = given_step_seconds(contract) == 0;
  return strprintf(
      "the training took %s s, not the %.6g s of its contract: a step took %s s, and the %ld "
      "steps were derived from %s s (contract.step_seconds, %s%s)",
      seconds_text(*spent).c_str(), contract.coefficient * contract.fraction,
      seconds_text(step).c_str(), long(run.config.run.steps), seconds_text(planned).c_str(),
      measured ? "measured when the run began" : "as given",
      measured ? "; where it is given, all seeds take equal steps" : "");
}

}  // namespace assay
