// What a comparison holds fixed: the contract of a run as text, and the quantity that a contract
// makes equal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"

namespace assay {

// Relative tolerance of a quantity that is held fixed: whole steps meet it only nearly.
constexpr double kHeldWithin = 0.01;

// "20% of totalDN at 26.24 tokens per total parameter". Runs with the same text are under the same
// contract.
std::string contract_text(const RunRecord& run);

// What a contract of this kind (models/audit/horizon.h) makes equal, such as "tokens per active
// parameter", and its planned value (seconds: the measured value).
struct HeldFixed {
  const char* what;
  std::optional<double> value;
};
std::vector<HeldFixed> held_fixed(ContractKind kind, const RunRecord& run);

}  // namespace assay
