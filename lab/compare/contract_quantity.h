// What a comparison holds fixed: the contract of a run as text, the quantity that a contract makes
// equal, and whether it is equal in the runs that are compared.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"
#include "lab/runs/seed_groups.h"

namespace assay {

// Relative tolerance of a quantity that is held fixed: whole steps meet it only nearly.
constexpr double kHeldWithin = 0.01;
// The same of a measured time, which varies from run to run.
constexpr double kMeasuredWithin = 0.05;
// The same of the seeds of one model that measured steps of their own.
constexpr double kSeedsWithin = 0.2;

// "20% of totalDN at 26.24 tokens per total parameter". Runs with the same text are under the same
// contract.
std::string contract_text(const RunRecord& run);

// What a contract of this kind (models/audit/horizon.h) makes equal, such as "tokens per active
// parameter", and its planned value (seconds: those of the planned steps at the measured speed, as
// a run may have stopped at its target).
struct HeldFixed {
  enum class How {
    kGiven,
    kPlannedSteps,
    kOfWholeSteps,  // met up to one step of the run, also where that is more than kHeldWithin
    kMeasured,      // of a model, the mean over its seeds; within kMeasuredWithin
  };
  const char* what;
  std::optional<double> value;
  How how = How::kGiven;
};
std::vector<HeldFixed> held_fixed(ContractKind kind, const RunRecord& run);

// A contract that the runs do not keep, or are not known to.
struct NotHeld {
  std::string sentence;  // "Not held fixed: planned steps: 60 in a, 80 in b."
  std::string note;      // after the contract's name: " is not kept: planned steps: 60 in a, ..."
};
enum class PlannedSteps { kEqual, kOfEachModel };  // of each model: they are not compared
// The first quantity of the contract that differs by more than its tolerance or was not logged, or
// seconds of two machines; nullopt if it is kept. Names runs, and of what is measured the models.
// Last, seconds that differ between the seeds of a model which took other steps: where the machine
// was slower while one measured its step, that one trained for less. Seeds of equal steps may take
// other seconds, as the losses are of those steps.
std::optional<NotHeld> not_held_fixed(ContractKind kind, const std::vector<SeedGroup>& models,
                                      PlannedSteps steps = PlannedSteps::kEqual);

}  // namespace assay
