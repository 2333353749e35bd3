// How many steps a contract asks for: its horizon H, and the landings on the way. docs/contracts.md
// says what each contract holds fixed.
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
// Whether the coefficient is tokens per parameter.
bool is_tokens_per_parameter(const std::string& kind);

enum class SharedExperts { kInTotal, kLeftOut };
SharedExperts shared_experts(const ContractConfig& contract);

// What a contract multiplies: P_total for totalDN, P_active for activeDN.
int64_t contract_parameters(const std::string& kind, const Audit& audit,
                            SharedExperts shared = SharedExperts::kInTotal);

// floor(coefficient * parameters / tokens_per_step)
int64_t horizon_steps(int64_t parameters, double coefficient, int64_t tokens_per_step);

// Whether the horizon follows from the configuration alone: not when a reference or a measurement
// is missing yet.
bool horizon_is_known(const Config& config);

// H. UserError when the model is not one that the contract compares.
int64_t horizon(const Config& config);
int64_t horizon(const Config& config, const Audit& audit);

// The steps of the run. UserError when there are none.
int64_t planned_steps(const Config& config);

// contract.landings, or when it is absent 2, 5, 10, 20, 50 and 100% of the horizon (none for kind
// steps), as far as the run goes, and its end.
std::vector<double> landing_fractions(const ContractConfig& contract);
std::vector<Landing> landings(const Config& config);

}  // namespace assay
