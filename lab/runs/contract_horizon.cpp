#include "lab/runs/contract_horizon.h"

#include "models/audit/horizon.h"

namespace assay {

int64_t contract_horizon(const RunRecord& run) {
  const ContractConfig& contract = run.config.contract;
  if (contract.kind == ContractKind::kActiveWidth || !horizon_is_known(run.config)) {
    return contract.horizon > 0 ? contract.horizon : run.config.run.steps;
  }
  return horizon(run.config, run.audit);
}

}  // namespace assay
