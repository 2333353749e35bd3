#include "lab/compare/compare.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <set>

#include "base/check.h"
#include "base/step_count.h"
#include "engine/run/run.h"
#include "engine/run/run_dir.h"
#include "lab/compare/contract_quantity.h"
#include "lab/compare/ranking.h"
#include "lab/runs/contract_horizon.h"
#include "lab/runs/data_roles.h"
#include "lab/runs/first_weights.h"
#include "lab/runs/machine.h"
#include "lab/runs/shared_order.h"

namespace assay {
namespace {

constexpr double kNearStep = 0.1;  // largest relative distance of an evaluation from its step

std::optional<double> value_of(const std::optional<EvalValue>& eval) {
  if (!eval) return std::nullopt;
  return eval->value;
}

std::optional<double> final_loss(const RunRecord& run) {
  return value_of(run.last_val());
}

std::optional<double> final_bits_per_byte(const RunRecord& run) {
  if (run.val_bits_per_byte.empty()) return std::nullopt;
  return run.val_bits_per_byte.back().value;
}

// The step of the evaluation nearest to `wanted` in any of the runs; nullopt if none is near.
std::optional<int64_t> nearest_evaluation(std::span<const RunRecord* const> runs, int64_t wanted) {
  std::optional<int64_t> nearest;
  for (const RunRecord* run : runs) {
    for (const EvalValue& v : run->val_loss_nats) {
      const int64_t distance = std::abs(v.step - wanted);
      if (double(distance) > kNearStep * double(wanted)) continue;
      if (!nearest || distance < std::abs(*nearest - wanted)) nearest = v.step;
    }
  }
  return nearest;
}

// Under a contract of seconds every seed may take its own number of steps.
bool has_one_horizon(const SeedGroup& group) {
  const int64_t first = contract_horizon(*group.runs.front());
  return std::all_of(group.runs.begin(), group.runs.end(),
                     [&](const RunRecord* run) { return contract_horizon(*run) == first; });
}

CurvePoint curve_point(const SeedGroup& group, double fraction) {
  CurvePoint point{.fraction = fraction};
  const auto step_of = [&](const RunRecord& run) {
    return fraction_of_steps(contract_horizon(run), fraction);
  };
  if (!has_one_horizon(group)) {
    point.loss = summarise(values_of(group, [&](const RunRecord& run) -> std::optional<double> {
      const RunRecord* const one[] = {&run};
      const auto own = nearest_evaluation(one, step_of(run));
      return own ? finite_value(run.val_at(*own)) : std::nullopt;
    }));
    return point;
  }
  point.step = step_of(*group.runs.front());
  const std::optional<int64_t> step = nearest_evaluation(group.runs, point.step);
  if (!step) return point;
  point.measured_at = *step;
  point.loss = summarise(
      values_of(group, [&](const RunRecord& run) { return finite_value(run.val_at(*step)); }));
  return point;
}

TargetSummary target_summary(const SeedGroup& group, double target, const LeftOutSteps& left_out) {
  const auto over = [&](TargetCost cost) {
    return summarise(costs_to_target(group, target, cost, left_out));
  };
  TargetSummary s{.of = int64_t(group.runs.size())};
  s.steps = over(TargetCost::kSteps);
  s.tokens = over(TargetCost::kTokens);
  s.seconds = over(TargetCost::kSeconds);
  s.flops = over(TargetCost::kFlops);
  s.reached = s.steps ? s.steps->n : 0;
  if (!other_machine(group.runs).empty()) s.seconds.reset();
  return s;
}

// Of a group with a run in that state, uneven or restless.
const RouterHealth& worst_in_state(const SeedGroup& group, RouterState state) {
  const auto badness = [&](const RouterHealth& health) {
    return state == RouterState::kRestless ? health.worst_steps->swing : health.worst_max_load_norm;
  };
  const RouterHealth* worst = nullptr;
  for (const RunRecord* run : group.runs) {
    if (!run->health || router_state(*run->health) != state) continue;
    if (!worst || badness(*run->health) > badness(*worst)) worst = &*run->health;
  }
  CHECK(worst != nullptr, "no run of %s is %s", group.name.c_str(), name_of(state));
  return *worst;
}

HealthSummary health_summary(const SeedGroup& group) {
  HealthSummary s{.sparse = group.config().model.moe.has_value()};
  for (const RunRecord* run : group.runs) {
    if (!run->health) continue;
    const RouterState state = router_state(*run->health);
    s.collapsed += state == RouterState::kCollapsed;
    s.uneven += state == RouterState::kUneven;
    s.restless += state == RouterState::kRestless;
    s.state = std::max(s.state, state);
    if (s.logged++ == 0 || run->health->worst_max_load_norm > s.worst.worst_max_load_norm)
      s.worst = *run->health;
  }
  if (s.state == RouterState::kUneven || s.state == RouterState::kRestless) {
    s.worst_in_state = worst_in_state(group, s.state);
  }
  return s;
}

CapabilitySummary capability_summary(const SeedGroup& group) {
  CapabilitySummary s;
  const SeedValues values = values_of(group, [&](const RunRecord& run) -> std::optional<double> {
    if (!run.core) return std::nullopt;
    if (std::find(s.names.begin(), s.names.end(), run.core->name) == s.names.end()) {
      s.names.push_back(run.core->name);
    }
    return run.core->value;
  });
  s.scored = int64_t(values.size());
  if (s.names.size() != 1) return s;
  s.value = summarise(values);
  return s;
}

// True if the run ended, was given more steps and is training again.
bool extended(const RunRecord& run) {
  return run.end == "steps" && run.steps_done < run.config.run.steps;
}

// The run's name and what stopped it; "" of a finished run.
std::string unfinished_text(const RunRecord& run) {
  if (stopped_by_guard(run.end)) {
    return strprintf("%s (stopped by its guard, %s, at step %ld)", run.name.c_str(),
                     run.end.c_str(), long(run.steps_done));
  }
  return !run.finished() || extended(run) ? run.name : "";
}

ModelRow model_row(const SeedGroup& group, const CompareOptions& options, const Comparison& c) {
  ModelRow row{.group = group, .contract = contract_text(*group.runs.front())};
  row.final_loss = summarise(values_of(group, final_loss));
  row.best_loss =
      summarise(values_of(group, [](const RunRecord& r) { return value_of(r.best_val()); }));
  row.bits_per_byte = summarise(values_of(group, final_bits_per_byte));
  row.other_machine = other_machine(group.runs);
  if (row.other_machine.empty()) {
    row.seconds =
        summarise(values_of(group, [](const RunRecord& r) { return r.seconds_at(r.steps_done); }));
  }
  for (const double f : options.fractions) row.curve.push_back(curve_point(group, f));
  if (c.target_loss) row.target = target_summary(group, *c.target_loss, c.left_out_steps);
  row.capability = capability_summary(group);
  row.health = health_summary(group);
  for (const RunRecord* run : group.runs) {
    if (std::string text = unfinished_text(*run); !text.empty()) row.unfinished.push_back(text);
  }
  return row;
}

// The target loss common to all runs; nullopt, and a note if their targets differ.
std::optional<double> common_target(std::span<const RunRecord> runs, const CompareOptions& options,
                                    std::vector<std::string>& notes) {
  if (options.target_loss) return options.target_loss;
  std::set<double> targets;
  for (const RunRecord& run : runs) targets.insert(run.config.run.target_loss);
  if (targets.size() == 1 && *targets.begin() > 0) return *targets.begin();
  if (targets.size() > 1)
    notes.push_back(
        strprintf("run.target_loss is %g in some runs and %g in others; --target LOSS "
                  "sets one for all",
                  *targets.begin(), *targets.rbegin()));
  return std::nullopt;
}

// Marks the comparison if what the contract makes equal is not equal in all runs. by: how the
// contract was named.
void check_held(Comparison& c, ContractKind kind, const std::string& by) {
  std::vector<SeedGroup> models;
  for (const ModelRow& row : c.models) models.push_back(row.group);
  const std::optional<NotHeld> found = not_held_fixed(kind, models);
  if (!found) return;
  c.not_held = found->sentence;
  c.notes.push_back(by + name_of(kind) + found->note);
}

void name_contract(Comparison& c, std::span<const RunRecord> runs, const CompareOptions& options) {
  std::set<std::string> texts;
  for (const ModelRow& row : c.models) texts.insert(row.contract);
  if (texts.size() > 1)
    c.notes.push_back("the runs are under " + std::to_string(texts.size()) +
                      " different contracts: see their column in the table");
  if (options.contract) {
    c.contract = *options.contract + ", set by --contract";
    return check_held(c, *choice_named<ContractKind>(*options.contract), "--contract ");
  }
  if (texts.size() != 1) {
    c.no_ranking =
        "the runs are under different contracts; --contract KIND of `assay compare` and `assay "
        "report` sets what the comparison holds fixed";
    return;
  }
  c.contract = *texts.begin();
  const ContractKind kind = runs.front().config.contract.kind;
  // Seeds of one model measure steps of their own.
  const bool may_differ =
      c.models.size() > 1 || (kind == ContractKind::kSeconds && runs.size() > 1);
  if (may_differ) check_held(c, kind, "the contract ");
}

// Weights that were trained elsewhere before: no contract holds that training fixed.
void check_first_weights(Comparison& c, std::span<const RunRecord> runs) {
  if (const std::string other = other_first_weights(runs); !other.empty()) c.no_ranking = other;
}

// In the order of severity; of a collapsed model only that.
void note_routers(Comparison& c, const ModelRow& row) {
  const HealthSummary& health = row.health;
  if (health.collapsed > 0) {
    c.notes.push_back(row.group.name + " is pathological: " + health.text());
    return;
  }
  const auto note = [&](RouterState state, int64_t runs, const char* means) {
    if (runs == 0) return;
    c.notes.push_back(strprintf("the routers of %s are %s in %ld of %ld runs: %s",
                                row.group.name.c_str(), name_of(state), long(runs),
                                long(health.logged), means));
  };
  note(RouterState::kUneven, health.uneven, "far from even over the window, but not collapsed");
  note(RouterState::kRestless, health.restless, "even over the window, uneven at its single steps");
}

void note_models(Comparison& c) {
  for (const ModelRow& row : c.models) {
    if (began_from_imported(*row.group.runs.front())) {
      c.notes.push_back(row.group.name + " began from imported weights (" + kImportedFile +
                        "): what those cost is not counted");
    }
    for (const RunRecord* run : row.group.runs) {
      const std::string leak = trained_validation_text(*run);
      if (!leak.empty()) c.notes.push_back(leak);
    }
    if (!row.other_machine.empty()) {
      c.notes.push_back(row.group.name + " has no seconds: " + row.other_machine);
    }
    for (const RunRecord* run : row.group.runs) {
      const std::string name = unfinished_text(*run);
      if (name.empty()) continue;
      c.notes.push_back(name + (run->val_loss_nats.empty()
                                    ? " is not finished, and was not validated: it has no loss"
                                    : " is not finished: its values are from its last evaluation"));
    }
    note_routers(c, row);
    for (const CurvePoint& point : row.curve)
      if (point.loss && point.loss->n < int64_t(row.group.runs.size()))
        c.notes.push_back(strprintf("%s at %g%%: %ld of its %zu runs have a loss there",
                                    row.group.name.c_str(), 100 * point.fraction,
                                    long(point.loss->n), row.group.runs.size()));
  }
  if (std::any_of(c.models.begin(), c.models.end(),
                  [](const ModelRow& row) { return row.group.runs.size() == 1; }) &&
      c.models.size() > 1)
    c.notes.push_back("a model with one seed has no interval: the seed may cause a difference");
}

// The seconds of the models stand side by side, on the page also without a target. Not if a note
// has the two machines already.
void note_other_machines(Comparison& c) {
  std::vector<const RunRecord*> runs;
  for (const ModelRow& row : c.models) {
    if (row.seconds) runs.insert(runs.end(), row.group.runs.begin(), row.group.runs.end());
  }
  const std::string why = other_machine(runs);
  const auto says = [&](const std::string& note) { return note.find(why) != std::string::npos; };
  if (why.empty() || std::any_of(c.notes.begin(), c.notes.end(), says)) return;
  c.notes.push_back("the seconds of the models are of different machines and do not compare: " +
                    why);
}

}  // namespace

std::string CapabilitySummary::text() const {
  if (names.empty()) return "not evaluated";
  if (!value) return strprintf("%zu different scores", names.size());
  const std::string spread = value->sd ? strprintf(" sd %.4f", *value->sd) : "";
  return strprintf("%s %.4f%s, n %ld", names.front().c_str(), value->mean, spread.c_str(),
                   long(scored));
}

std::string HealthSummary::text() const {
  if (!sparse) return "dense";
  if (logged == 0) return "not logged";
  if (state == RouterState::kRestless) {
    return strprintf("restless in %ld of %ld runs: ", long(restless), long(logged)) +
           worst_in_state->text();
  }
  if (state == RouterState::kUneven) {
    const std::string steps = worst_in_state->steps_text();
    return strprintf("uneven in %ld of %ld runs: ", long(uneven), long(logged)) +
           worst_in_state->text() + (steps.empty() ? "" : "; " + steps);
  }
  if (collapsed == 0) return state_word(state) + ": " + worst.text();
  return strprintf("collapsed in %ld of %ld runs: ", long(collapsed), long(logged)) + worst.text();
}

std::string HealthSummary::collapse_text() const {
  if (collapsed == 0) return "";
  if (collapsed == logged) return "collapsed";
  return strprintf("collapsed in %ld of %ld runs", long(collapsed), long(logged));
}

Comparison compare(std::span<const RunRecord> runs, const CompareOptions& options) {
  Comparison c;
  c.incomparable = incomparable_differences(runs);
  if (options.incomparable == Incomparable::kRefuse)
    refuse_incomparable(c.incomparable, "--force compares them anyway, without a ranking");
  c.target_loss = common_target(runs, options, c.notes);
  if (c.target_loss) {
    std::vector<const RunRecord*> all;
    for (const RunRecord& run : runs) all.push_back(&run);
    c.left_out_steps = uneven_landings(all);
  }
  std::vector<SeedGroup> groups = group_by_seed(runs);
  if (options.model_name) {
    for (SeedGroup& group : groups) group.name = options.model_name(*group.runs.front());
  }
  for (const SeedGroup& group : groups) c.models.push_back(model_row(group, options, c));
  c.confounds = run_confounds(groups);
  for (size_t i = 1; i < c.models.size(); ++i) {
    const SeedGroup &group = c.models[i].group, &first = c.models[0].group;
    c.models[i].loss_against_first =
        paired_difference(values_of(group, final_loss), values_of(first, final_loss));
    c.models[i].core_against_first = compare_core_rows(group, first);
  }
  name_contract(c, runs, options);
  check_first_weights(c, runs);
  note_models(c);
  if (const std::string note = shared_order_text(groups); !note.empty()) c.notes.push_back(note);
  rank(c);
  note_other_machines(c);
  return c;
}

}  // namespace assay
