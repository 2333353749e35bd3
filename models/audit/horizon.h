// The number of steps that a contract gives, its horizon H, and the landings on the way.
// docs/contracts.md explains what each contract holds fixed.
//
//   steps          H = run.steps
//   active-width   H = run.steps, for models whose active FFN width is the coefficient
//   activeDN       H = floor(coefficient P_active / tokens per step)
//   totalDN        H = floor(coefficient P_total / tokens per step)
//   flops          H = floor(coefficient / (FLOPs per token * tokens per step))
//   seconds        H = floor(coefficient / contract.step_seconds)
//
// A run trains ceil(contract.fraction H) steps; the landing f is after step ceil(f H).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/step_count.h"
#include "engine/run/landing.h"
#include "models/audit/audit.h"

namespace assay {

// In the order of the list above.
const std::vector<std::string>& contract_kinds();
// True if the coefficient is tokens per parameter.
bool is_tokens_per_parameter(ContractKind kind);

enum class SharedExperts { kInTotal, kLeftOut };
SharedExperts shared_experts(const ContractConfig& contract);

// The parameters that the coefficient multiplies: P_total (totalDN) or P_active (activeDN).
int64_t contract_parameters(ContractKind kind, const Audit& audit,
                            SharedExperts shared = SharedExperts::kInTotal);

// floor(coefficient * parameters / tokens_per_step). Throws UserError if the coefficient is not in
// (0, 1e12].
int64_t horizon_steps(int64_t parameters, double coefficient, int64_t tokens_per_step);

// True if the configuration alone determines the horizon; false if it needs a reference or a
// measurement.
bool horizon_is_known(const Config& config);

// H; horizon_is_known(config) must hold. Throws UserError with active-width if the model has
// another width.
int64_t horizon(const Config& config);
int64_t horizon(const Config& config, const Audit& audit);

// The run's steps, ceil(contract.fraction H). Throws UserError if H is 0.
int64_t planned_steps(const Config& config);

// contract.landings; if absent, the shares 2, 5, 10, 20, 50 and 100% of the horizon below
// contract.fraction, and contract.fraction itself (none for kind steps). Sorted, each once.
std::vector<double> landing_fractions(const ContractConfig& contract);
std::vector<Landing> landings(const Config& config);

}  // namespace assay
