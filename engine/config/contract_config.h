// Section contract: what fixes the number of steps.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/choice.h"
#include "engine/config/field_check.h"

namespace assay {

enum class ContractKind { kSteps, kActiveWidth, kActiveDN, kTotalDN, kFlops, kSeconds };
template <>
struct Choice<ContractKind> {
  static constexpr const char* kNames[] = {"steps",   "active-width", "activeDN",
                                           "totalDN", "flops",        "seconds"};
};

// Whether a contract of this kind leaves run.steps to the user, or to its reference; the others
// give the steps by themselves.
constexpr bool takes_run_steps(ContractKind kind) {
  return kind == ContractKind::kSteps || kind == ContractKind::kActiveWidth;
}

struct ContractConfig {
  ContractKind kind = ContractKind::kSteps;
  double coefficient = 0.0;
  std::string reference = "";
  std::string derived_from = "";
  bool shared_in_total = true;
  double step_seconds = 0.0;
  int64_t horizon = 0;
  double fraction = 1.0;
  std::optional<std::vector<double>> landings = {};
};

template <typename V>
void visit(V& v, ContractConfig& c) {
  v("kind", c.kind,
    "what fixes the number of steps: run.steps (steps, active-width), or the coefficient",
    free_on_resume(any()));
  v("coefficient", c.coefficient,
    "by kind: tokens per active or total parameter, FLOPs, seconds of training, active FFN width",
    free_on_resume(not_negative()));
  v("reference", c.reference,
    "configuration or run to derive the coefficient from (kind steps: run.steps)",
    free_on_resume(path()));
  v("derived_from", c.derived_from, "source of the coefficient; written by the program",
    free_on_resume(any()));
  v("shared_in_total", c.shared_in_total, "totalDN counts shared experts", free_on_resume(any()));
  v("step_seconds", c.step_seconds,
    "kind seconds: seconds per step; 0 = measured before the run begins",
    free_on_resume(not_negative()));
  v("horizon", c.horizon,
    "steps of the whole contract if run.steps is a fraction of it; written by the program",
    free_on_resume(not_negative()));
  v("fraction", c.fraction, "share of the contract's horizon to train",
    {.low = 0, .high = 1, .low_open = true, .on_resume = OnResume::kFree});
  v("landings", c.landings,
    "shares of the horizon with an evaluation and a checkpoint that is never deleted; absent = 2, "
    "5, 10, 20, 50, 100% under a contract, none with kind steps",
    {.low = 0, .high = 1, .low_open = true, .on_resume = OnResume::kFree});
}

}  // namespace assay
