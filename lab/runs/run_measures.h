// Named measures of a run, for the claims of a matrix and its table of routers. Loads, cv and
// entropies are over the last W logged steps (telemetry.window), normalised, and means over layers
// unless the name says otherwise: docs/matrix.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"
#include "lab/runs/seed_groups.h"

namespace assay {

struct RunMeasure {
  const char* name;
  const char* says;  // description
  // What a run's configuration must have, or no run of it has the measure.
  enum class Needs { kNothing, kExperts, kTarget, kCore } needs;
  // kEndLoss: the loss at the end, which is about run.target_loss in runs that stop there.
  // kRouters: what a router does, which a run that was stopped for its collapse has shown; kWindow:
  // that over the last W logged steps. kMachine: a time, which runs of other machines do not share
  // (lab/runs/machine.h).
  enum class About { kModel, kEndLoss, kRouters, kWindow, kMachine } about;
  std::optional<double> (*of)(const RunRecord&);  // nullopt if the run does not have it
  // The value at a share of run.steps, as lab/runs/value_at_share.h reads it. Null: the measure has
  // no value during a run.
  std::optional<double> (*at)(const RunRecord&, double share) = nullptr;
  // By how much a run's value may be lower, as it was read at its validations or logged steps.
  // Null: it is exact.
  std::optional<double> (*resolution)(const RunRecord&) = nullptr;
  bool is_share = false;  // 0 or 1 in each run: lab/runs/share_claim.h judges claims about it
};
inline bool is_of_routers(const RunMeasure& measure) {
  using About = RunMeasure::About;
  return measure.about == About::kRouters || measure.about == About::kWindow;
}

const std::vector<RunMeasure>& run_measures();
const RunMeasure* find_run_measure(const std::string& name);  // null if unknown

// Whether every value of the measure is from 0 to 1.
bool is_from_0_to_1(const RunMeasure& measure);

// Of the runs that have the measure, with its resolution.
SeedValues values_of(const SeedGroup& group, const RunMeasure& measure);

// The same, summarised. A share of the runs has no interval: Student's would go beyond 0 and 1.
std::optional<Summary> summarise(const SeedValues& values, const RunMeasure& measure);

// Block indices of the layers that saturate first, all at one logged step; empty if none saturates.
std::vector<int64_t> first_saturated_layers(const RunRecord& run);

}  // namespace assay
