#include "lab/compare/ranking.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/check.h"
#include "base/some_names.h"
#include "lab/runs/machine.h"

namespace assay {
namespace {

using Values = std::function<SeedValues(const SeedGroup&)>;

// How certain it is that a is below b: by intervals, and by the paired difference of shared seeds.
std::string certainty(const ModelRow& a, const ModelRow& b, const Values& values) {
  const SeedValues of_a = values(a.group), of_b = values(b.group);
  const Summary sa = *summarise(of_a), sb = *summarise(of_b);
  if (sa.mean == sb.mean) return "equal to the next one";
  if (sa.n == 1 || sb.n == 1) return "no interval with one seed";
  std::string text = !sa.interval95 || !sb.interval95 ? "no interval of equal values"
                     : sa.interval95->overlaps(*sb.interval95)
                         ? "interval overlaps the next one's"
                         : "interval does not overlap the next one's";
  const auto paired = paired_difference(of_a, of_b);
  if (paired && paired->summary.no_spread()) {
    return text + ", paired difference " + kNoSpread;
  }
  if (!paired || !paired->summary.interval95) return text;
  const Interval& interval = *paired->summary.interval95;
  if (interval.low > 0) return text + ", paired difference of the shared seeds is the other way";
  return text + (interval.contains(0) ? ", paired difference includes 0"
                                      : ", paired difference excludes 0");
}

Ranking ranking(const Comparison& c, const std::string& by, const std::string& unit,
                const Values& values_in) {
  Ranking r{.by = by, .unit = unit, .places = {}};
  std::vector<const ModelRow*> order;
  for (const ModelRow& row : c.models) {
    if (values_in(row.group).size() == row.group.runs.size())
      order.push_back(&row);
    else
      r.not_reached.push_back(row.group.name);
  }
  const auto mean = [&](const ModelRow* row) { return summarise(values_in(row->group))->mean; };
  std::stable_sort(order.begin(), order.end(),
                   [&](const ModelRow* a, const ModelRow* b) { return mean(a) < mean(b); });
  for (size_t i = 0; i < order.size(); ++i) {
    std::string note = i + 1 < order.size() ? certainty(*order[i], *order[i + 1], values_in) : "";
    if (const std::string collapse = order[i]->health.collapse_text(); !collapse.empty())
      note = "pathological: routers " + collapse + (note.empty() ? "" : "; " + note);
    const SeedValues values = values_in(order[i]->group);
    Ranking::Place& place = r.places.emplace_back();
    place = {.place = int64_t(i) + 1,
             .model = order[i]->group.name,
             .value = *summarise(values),
             .note = note};
    if (i > 0 && mean(order[i - 1]) == mean(order[i])) place.place = r.places[i - 1].place;
    if (i + 1 < order.size())
      place.to_next = paired_difference(values, values_in(order[i + 1]->group));
  }
  return r;
}

void add_if_any(Comparison& c, Ranking r) {
  if (!r.places.empty()) c.rankings.push_back(std::move(r));
}

// Every run that stops at its target ends near it, so such runs are ranked by their cost to the
// target and not by their last loss.
bool stopped_at_target(const Comparison& c) {
  for (const ModelRow& row : c.models)
    for (const RunRecord* run : row.group.runs)
      if (run->end == "target_loss") return true;
  return false;
}

std::string other_machine_of_models(const Comparison& c) {
  std::vector<const RunRecord*> runs;
  for (const ModelRow& row : c.models) {
    runs.insert(runs.end(), row.group.runs.begin(), row.group.runs.end());
  }
  return other_machine(runs);
}

// The steps after which a run was validated until it reached the target, all if it did not; without
// the initial weights and what is not read as a crossing.
std::vector<int64_t> validated_until(const RunRecord& run, double target,
                                     const LeftOutSteps& left_out) {
  std::vector<int64_t> steps;
  for (const EvalValue& v : crossings_read(run, left_out)) {
    steps.push_back(v.step);
    if (v.value <= target) break;
  }
  return steps;
}

// Steps between these validations of a run; 0 if they are at unequal intervals. From what was done:
// eval.every may change while a run is trained. The landings of a contract and the last step, which
// are validated too, do not count.
int64_t validation_interval(const RunRecord& run, const std::vector<int64_t>& steps) {
  if (steps.empty()) return run.config.eval.every;
  std::set<int64_t> beside = landing_steps(run);
  beside.insert(run.config.run.steps);
  const auto is_every = [&](int64_t every) {
    int64_t multiples = 0;
    for (const int64_t step : steps) {
      multiples += step % every == 0;
      if (step % every != 0 && !beside.contains(step)) return false;
    }
    return multiples == steps.back() / every;
  };
  if (is_every(run.config.eval.every)) return run.config.eval.every;
  const auto found = std::find_if(steps.begin(), steps.end(), is_every);
  return found == steps.end() ? 0 : *found;
}

// Whether two runs were validated after the same steps, as far as the shorter list goes.
bool same_steps(const std::vector<int64_t>& a, const std::vector<int64_t>& b) {
  return std::equal(a.begin(), a.begin() + int64_t(std::min(a.size(), b.size())), b.begin());
}

// "a was validated every 5 steps, b every 20" if the runs were at different intervals until they
// reached the target; "" otherwise. A model that is looked at more often is seen earlier at it.
std::string other_interval(const Comparison& c, double target) {
  const auto interval = [&](const RunRecord& run) {
    return validation_interval(run, validated_until(run, target, c.left_out_steps));
  };
  const auto text = [](int64_t every, const char* unit) {
    return every > 0 ? strprintf("every %ld%s", long(every), unit) : "at unequal intervals";
  };
  const RunRecord& first = *c.models.front().group.runs.front();
  const int64_t of_first = interval(first);
  for (const ModelRow& row : c.models) {
    for (const RunRecord* run : row.group.runs) {
      const int64_t every = interval(*run);
      if (run == &first || (every == of_first && every > 0)) continue;
      if (same_steps(validated_until(first, target, c.left_out_steps),
                     validated_until(*run, target, c.left_out_steps))) {
        continue;
      }
      return first.name + " was validated " + text(of_first, " steps") + ", " + run->name + " " +
             text(every, "");
    }
  }
  return "";
}

void rank_by_target(Comparison& c) {
  const double target = *c.target_loss;
  if (const std::string why = other_interval(c, target); !why.empty()) {
    c.notes.push_back("no ranking by the time to the target: " + why);
    if (c.rankings.empty()) c.no_ranking = why;
    return;
  }
  const auto by = [&](const char* what) { return strprintf("%s to %g nats", what, target); };
  const auto rank_by = [&](const char* what, const char* unit, TargetCost cost) {
    add_if_any(c, ranking(c, by(what), unit, [&](const SeedGroup& group) {
                 return costs_to_target(group, target, cost, c.left_out_steps);
               }));
  };
  rank_by("steps", "steps", TargetCost::kSteps);
  rank_by("tokens", "tokens", TargetCost::kTokens);
  rank_by("FLOPs", "FLOPs", TargetCost::kFlops);
  if (const std::string why = other_machine_of_models(c); !why.empty()) {
    c.notes.push_back("no ranking by seconds: " + why);
    return;
  }
  rank_by("seconds", "s", TargetCost::kSeconds);
}

// "a is not finished", "2 runs are not finished: a, b"; "" if all are.
std::string unfinished_runs(const Comparison& c) {
  std::vector<std::string> runs;
  for (const ModelRow& row : c.models) {
    runs.insert(runs.end(), row.unfinished.begin(), row.unfinished.end());
  }
  if (runs.empty()) return "";
  if (runs.size() == 1) return runs.front() + " is not finished";
  return strprintf("%zu runs are not finished: ", runs.size()) + some_names(runs);
}

}  // namespace

void rank(Comparison& c) {
  if (!c.no_ranking.empty()) return;
  if (c.models.size() < 2) {
    c.no_ranking = "there is only one model";
    return;
  }
  if (!c.incomparable.empty()) {
    c.no_ranking = "the runs are not comparable: see the notes";
    return;
  }
  if (c.no_ranking = unfinished_runs(c); !c.no_ranking.empty()) return;
  if (!stopped_at_target(c)) {
    add_if_any(c, ranking(c, "validation loss at the end", "nats", [](const SeedGroup& group) {
                 return values_of(group, [](const RunRecord& run) -> std::optional<double> {
                   const auto last = run.last_val();
                   return last ? std::optional(last->value) : std::nullopt;
                 });
               }));
  }
  if (c.target_loss) rank_by_target(c);
  if (c.rankings.empty() && c.no_ranking.empty()) c.no_ranking = "no model has values to rank by";
}

}  // namespace assay
