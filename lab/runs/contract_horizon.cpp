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
      "the training took %.3g s, not the %.3g s of its contract: a step took %.3g s, and the %ld "
      "steps were derived from %.3g s (contract.step_seconds, %s%s)",
      *spent, contract.coefficient * contract.fraction, step, long(run.config.run.steps), planned,
      measured ? "measured when the run began" : "as given",
      measured ? "; where it is given, all seeds take equal steps" : "");
}

}  // namespace assay
