// What a run had spent at its first evaluation at or below a loss. It crossed the loss somewhere
// after the evaluation before: what lies between the two is the resolution of every such cost.
//
//   const auto steps = costs_to_target(model, 3.28, TargetCost::kSteps);
//   const auto difference = paired_difference(steps, costs_to_target(other, ...));
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "lab/runs/seed_groups.h"

namespace assay {

enum class TargetCost { kSteps, kTokens, kSeconds, kFlops };

struct TimeToTarget {
  double loss_nats = 0;  // of that evaluation
  int64_t steps = 0;
  int64_t steps_before = 0;  // of the evaluation before, 0 without one: it was above the loss
  double tokens = 0;
  double flops = 0;               // training FLOPs of the model
  std::optional<double> seconds;  // of training, if logged
};

// Steps of evaluations that are not read as crossings (uneven_landings()).
using LeftOutSteps = std::set<int64_t>;

// The evaluations of the validation loss that may be a crossing: those after a step, without those
// left out. A run's last one always counts.
std::vector<EvalValue> crossings_read(const RunRecord& run, const LeftOutSteps& left_out);

std::optional<TimeToTarget> time_to_target(const RunRecord& run, double loss_nats,
                                           const LeftOutSteps& left_out = {});

// A cost, and by how much it may have been lower; nullopt without a logged time.
std::optional<double> cost_to_target(const RunRecord& run, const TimeToTarget& time,
                                     TargetCost cost);
std::optional<double> cost_resolution(const RunRecord& run, const TimeToTarget& time,
                                      TargetCost cost);

// Whether a run ended at its run.target_loss before its planned steps: its loss there is about the
// target, whatever the model. val_loss_nats: by step.
bool stopped_at_target(const Config& config, int64_t steps_done,
                       const std::vector<EvalValue>& val_loss_nats);
// Whether a claim on final losses rests on such runs: of `terms` compared so many have one. Where
// the runs of one of two sides all ran to their end, it is known which is lower, but not by how
// much: enough if `only_order` is asked for, that a difference is below or above 0.
constexpr bool rests_on_targets(size_t terms, size_t stopped, bool only_order) {
  return terms == 2 && only_order ? stopped == 2 : stopped > 0;
}
inline constexpr const char* kStoppedAtTarget =
    "runs stopped at their target, where all losses are about it: claim target_steps instead";

// Of the runs that reached it, each with its resolution.
SeedValues costs_to_target(const SeedGroup& group, double loss_nats, TargetCost cost,
                           const LeftOutSteps& left_out = {});

// The landings of a run's contract, at which it is validated beside every eval.every steps.
std::set<int64_t> landing_steps(const RunRecord& run);

// Landings beside the runs' regular validations at which not every run that trained as far was
// validated: read as a crossing, one favours the model that it belongs to.
LeftOutSteps uneven_landings(const std::vector<const RunRecord*>& runs);
// "Landings at steps 89, 443 are not read as crossings: not every model was validated there.\n", ""
// for none.
std::string left_out_text(const LeftOutSteps& steps);

}  // namespace assay
