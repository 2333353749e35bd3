#include "lab/compare/contract_quantity.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "lab/runs/contract_horizon.h"
#include "lab/runs/machine.h"
#include "models/audit/audit_report.h"

namespace assay {
namespace {

double planned_tokens(const RunRecord& run) {
  return double(run.config.run.steps) * double(run.config.run.batch_tokens);
}

// The share that was asked for, as whole steps of two horizons are other quotients. A branch has
// recorded the quotient: it is a whole or half percent, or a third, where that gives these steps.
std::string share_text(const RunRecord& run) {
  const int64_t steps = run.config.run.steps, horizon = contract_horizon(run);
  if (steps >= horizon) return "";
  std::vector<double> shares = {0.02, 0.05, 0.1, 0.2, 0.5};
  const double given = run.config.contract.fraction;
  if (std::round(given * 1e4) / 1e4 == given) shares.push_back(given);
  for (const double parts : {100, 3, 200}) {
    shares.push_back(std::floor(double(steps) / double(horizon) * parts) / parts);
  }
  for (const double share : shares) {
    if (share <= 0 || steps != fraction_of_steps(horizon, share)) continue;
    return strprintf("%.4g%% of ", 100 * share);
  }
  return strprintf("%.4g%% of ", 100 * double(steps) / double(horizon));
}

// What totalDN multiplies.
double total_parameters(const RunRecord& run) {
  const ContractConfig& contract = run.config.contract;
  const bool own = contract.kind == ContractKind::kTotalDN;
  return contract_parameters(ContractKind::kTotalDN, run.audit,
                             own ? shared_experts(contract) : SharedExperts::kInTotal);
}

std::optional<double> planned_seconds(const RunRecord& run) {
  const std::optional<double> spent = run.seconds_at(run.steps_done);
  if (!spent || run.steps_done == 0) return spent;
  return *spent * double(run.config.run.steps) / double(run.steps_done);
}

// What is compared: the quantity of a run, or the mean of a model's.
struct Compared {
  std::string name;
  double value = 0;
  int64_t steps = 0;  // planned
};

double tolerance(HeldFixed::How how, const Compared& a, const Compared& b) {
  if (how == HeldFixed::How::kMeasured) return kMeasuredWithin;
  if (how != HeldFixed::How::kOfWholeSteps) return kHeldWithin;
  constexpr double kOneStep = 1 + 1e-9;  // quotients of doubles that are a step apart
  return std::max(kHeldWithin, kOneStep / double(std::max<int64_t>(1, std::min(a.steps, b.steps))));
}

// One quantity of the contract, by its place in held_fixed().
std::optional<NotHeld> other_quantity(ContractKind kind, const std::vector<SeedGroup>& models,
                                      size_t place, PlannedSteps steps) {
  using How = HeldFixed::How;
  std::vector<Compared> all;
  HeldFixed held = {};
  for (const SeedGroup& model : models) {
    Compared mean{.name = model.name};
    for (const RunRecord* run : model.runs) {
      held = held_fixed(kind, *run).at(place);
      if (held.how == How::kPlannedSteps && steps == PlannedSteps::kOfEachModel)
        return std::nullopt;
      if (!held.value) {
        return NotHeld{
            .sentence = strprintf("Not known to be held fixed: %s, not logged in %s.", held.what,
                                  run->name.c_str()),
            .note = strprintf(": %s of %s were not logged", held.what, run->name.c_str())};
      }
      mean.value += *held.value / double(model.runs.size());
      if (held.how != How::kMeasured) {
        all.push_back({run->name, *held.value, run->config.run.steps});
      }
    }
    if (held.how == How::kMeasured && !model.runs.empty()) all.push_back(mean);
  }
  const auto less = [](const Compared& a, const Compared& b) { return a.value < b.value; };
  const auto low = std::min_element(all.begin(), all.end(), less);
  const auto high = std::max_element(all.begin(), all.end(), less);
  if (high->value <= (1 + tolerance(held.how, *low, *high)) * low->value) return std::nullopt;
  const std::string values = strprintf("%s: %.6g in %s, %.6g in %s", held.what, low->value,
                                       low->name.c_str(), high->value, high->name.c_str());
  return NotHeld{.sentence = "Not held fixed: " + values + ".", .note = " is not kept: " + values};
}

// Of the first model of which that is so.
std::optional<NotHeld> other_seconds_of_seeds(const std::vector<SeedGroup>& models) {
  const auto seconds = [](const RunRecord* run) { return planned_seconds(*run).value_or(0); };
  const auto less = [&](const RunRecord* a, const RunRecord* b) { return seconds(a) < seconds(b); };
  for (const SeedGroup& model : models) {
    if (model.runs.size() < 2) continue;
    const auto [low, high] = std::minmax_element(model.runs.begin(), model.runs.end(), less);
    const RunRecord &short_run = **low, &long_run = **high;
    if (short_run.config.run.steps == long_run.config.run.steps) continue;
    if (seconds(*high) <= (1 + kSeedsWithin) * seconds(*low)) continue;
    const std::string values =
        strprintf("seconds of training: %.6g in %s (%ld steps), %.6g in %s (%ld steps)",
                  seconds(*low), short_run.name.c_str(), long(short_run.config.run.steps),
                  seconds(*high), long_run.name.c_str(), long(long_run.config.run.steps));
    return NotHeld{.sentence = "Not held fixed: " + values + ".",
                   .note = " is not kept: " + values};
  }
  return std::nullopt;
}

}  // namespace

std::string contract_text(const RunRecord& run) {
  const ContractConfig& contract = run.config.contract;
  const std::string share = share_text(run);
  if (contract.kind == ContractKind::kActiveDN)
    return share + strprintf("activeDN at %.6g tokens per active parameter", contract.coefficient);
  if (contract.kind == ContractKind::kTotalDN)
    return share + strprintf("totalDN at %.6g tokens per total parameter%s", contract.coefficient,
                             contract.shared_in_total ? "" : ", shared experts left out");
  if (contract.kind == ContractKind::kFlops)
    return share + strprintf("flops: %.6g FLOPs of training", contract.coefficient);
  if (contract.kind == ContractKind::kSeconds)
    return share + strprintf("seconds: %.6g s of training", contract.coefficient);
  const std::string steps =
      strprintf("%s steps of %s tokens", grouped(contract_horizon(run)).c_str(),
                grouped(run.config.run.batch_tokens).c_str());
  if (contract.kind == ContractKind::kActiveWidth)
    return share +
           strprintf("active-width: FFN %s, ", grouped(run.audit.ffn_active_width).c_str()) + steps;
  return share + name_of(contract.kind) + ": " + steps;
}

std::vector<HeldFixed> held_fixed(ContractKind kind, const RunRecord& run) {
  using How = HeldFixed::How;
  const HeldFixed steps = {"planned steps", double(run.config.run.steps), How::kPlannedSteps},
                  step = {"tokens per step", double(run.config.run.batch_tokens)};
  switch (kind) {
    case ContractKind::kSteps:
      return {steps, step};
    case ContractKind::kActiveWidth:
      return {{"active FFN width", double(run.audit.ffn_active_width)}, steps, step};
    case ContractKind::kActiveDN:
      return {{"tokens per active parameter", planned_tokens(run) / double(run.audit.active),
               How::kOfWholeSteps}};
    case ContractKind::kTotalDN:
      return {{"tokens per total parameter", planned_tokens(run) / total_parameters(run),
               How::kOfWholeSteps}};
    case ContractKind::kFlops:
      return {{"training FLOPs", run.flops_at(run.config.run.steps), How::kOfWholeSteps}};
    case ContractKind::kSeconds:
      return {{"seconds of training", planned_seconds(run), How::kMeasured}};
  }
  CHECK(false, "contract %d", int(kind));
}

std::optional<NotHeld> not_held_fixed(ContractKind kind, const std::vector<SeedGroup>& models,
                                      PlannedSteps steps) {
  std::vector<const RunRecord*> runs;
  for (const SeedGroup& model : models) {
    runs.insert(runs.end(), model.runs.begin(), model.runs.end());
  }
  if (runs.empty()) return std::nullopt;
  if (kind == ContractKind::kSeconds) {
    if (const std::string why = other_machine(runs); !why.empty()) {
      return NotHeld{.sentence = "Not held fixed: seconds: " + why + ".",
                     .note = " is not kept: " + why};
    }
  }
  const size_t quantities = held_fixed(kind, *runs.front()).size();
  for (size_t place = 0; place < quantities; ++place) {
    if (auto found = other_quantity(kind, models, place, steps)) return found;
  }
  return kind == ContractKind::kSeconds ? other_seconds_of_seeds(models) : std::nullopt;
}

}  // namespace assay
