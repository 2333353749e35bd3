#include "lab/runs/time_to_target.h"

#include <algorithm>

#include "base/joined.h"
#include "lab/runs/contract_horizon.h"
#include "models/audit/horizon.h"

namespace assay {
namespace {

std::optional<double> cost_at(const RunRecord& run, int64_t step, TargetCost cost) {
  switch (cost) {
    case TargetCost::kSteps:
      return double(step);
    case TargetCost::kTokens:
      return double(step) * double(run.config.run.batch_tokens);
    case TargetCost::kSeconds:
      return run.seconds_at(step);
    case TargetCost::kFlops:
      return run.flops_at(step);
  }
  return std::nullopt;
}

}  // namespace

std::vector<EvalValue> crossings_read(const RunRecord& run, const LeftOutSteps& left_out) {
  std::vector<EvalValue> read;
  for (const EvalValue& v : run.val_loss_nats) {
    const bool is_left_out = left_out.contains(v.step) && v.step != run.steps_done;
    if (v.step > 0 && !is_left_out) read.push_back(v);
  }
  return read;
}

std::optional<TimeToTarget> time_to_target(const RunRecord& run, double loss_nats,
                                           const LeftOutSteps& left_out) {
  int64_t before = 0;
  for (const EvalValue& v : crossings_read(run, left_out)) {
    if (v.value <= loss_nats) {
      return TimeToTarget{.loss_nats = v.value,
                          .steps = v.step,
                          .steps_before = before,
                          .tokens = *cost_at(run, v.step, TargetCost::kTokens),
                          .flops = run.flops_at(v.step),
                          .seconds = run.seconds_at(v.step)};
    }
    before = v.step;
  }
  return std::nullopt;
}

bool stopped_at_target(const Config& config, int64_t steps_done,
                       const std::vector<EvalValue>& val_loss_nats) {
  return config.run.target_loss > 0 && steps_done < config.run.steps && !val_loss_nats.empty() &&
         val_loss_nats.back().value <= config.run.target_loss;
}

std::optional<double> cost_to_target(const RunRecord& run, const TimeToTarget& time,
                                     TargetCost cost) {
  return cost_at(run, time.steps, cost);
}

std::optional<double> cost_resolution(const RunRecord& run, const TimeToTarget& time,
                                      TargetCost cost) {
  const auto at = cost_at(run, time.steps, cost);
  if (!at) return std::nullopt;
  // Seconds before the first logged step are not known: 0 is the widest.
  return *at - cost_at(run, time.steps_before, cost).value_or(0);
}

SeedValues costs_to_target(const SeedGroup& group, double loss_nats, TargetCost cost,
                           const LeftOutSteps& left_out) {
  const auto part = [&](auto of) {
    return [&, of](const RunRecord& run) -> std::optional<double> {
      const auto time = time_to_target(run, loss_nats, left_out);
      return time ? of(run, *time, cost) : std::nullopt;
    };
  };
  return values_of(group, part(cost_to_target), part(cost_resolution));
}

std::set<int64_t> landing_steps(const RunRecord& run) {
  std::set<int64_t> steps;
  const std::vector<double> fractions = landing_fractions(run.config.contract);
  if (fractions.empty()) return steps;
  const int64_t horizon = contract_horizon(run);
  for (const double f : fractions) steps.insert(fraction_of_steps(horizon, f));
  return steps;
}

LeftOutSteps uneven_landings(const std::vector<const RunRecord*>& runs) {
  LeftOutSteps uneven;
  for (const RunRecord* run : runs) {
    for (const int64_t step : landing_steps(*run)) {
      if (step % run->config.eval.every == 0 || step == run->config.run.steps) continue;
      const bool lacks = std::any_of(runs.begin(), runs.end(), [&](const RunRecord* other) {
        return other->steps_done >= step && !other->val_at(step);
      });
      if (lacks && run->val_at(step)) uneven.insert(step);
    }
  }
  return uneven;
}

std::string left_out_text(const LeftOutSteps& steps) {
  if (steps.empty()) return "";
  return "Landings at steps " + joined(steps, ", ") +
         " are not read as crossings: not every model was validated there.\n";
}

}  // namespace assay
