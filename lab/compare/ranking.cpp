#include "lab/compare/ranking.h"

#include <algorithm>
#include <functional>

#include "base/check.h"
#include "lab/runs/machine.h"

namespace assay {
namespace {

using Value = std::function<std::optional<double>(const RunRecord&)>;

// How certain it is that a is below b: by intervals, and by the paired difference of shared seeds.
std::string certainty(const ModelRow& a, const ModelRow& b, const Value& value) {
  const SeedValues of_a = values_of(a.group, value), of_b = values_of(b.group, value);
  const Summary sa = *summarise(of_a), sb = *summarise(of_b);
  if (sa.mean == sb.mean) return "equal to the next one";
  if (!sa.interval95 || !sb.interval95) return "no interval with one seed";
  std::string text = sa.interval95->overlaps(*sb.interval95)
                         ? "interval overlaps the next one's"
                         : "interval does not overlap the next one's";
  const auto paired = paired_difference(of_a, of_b);
  if (!paired || !paired->summary.interval95) return text;
  const Interval& interval = *paired->summary.interval95;
  if (interval.low > 0) return text + ", paired difference of the shared seeds is the other way";
  return text + (interval.contains(0) ? ", paired difference includes 0"
                                      : ", paired difference excludes 0");
}

Ranking ranking(const Comparison& c, const std::string& by, const std::string& unit,
                const Value& value) {
  Ranking r{.by = by, .unit = unit, .places = {}};
  std::vector<const ModelRow*> order;
  for (const ModelRow& row : c.models) {
    if (values_of(row.group, value).size() == row.group.runs.size())
      order.push_back(&row);
    else
      r.not_reached.push_back(row.group.name);
  }
  const auto mean = [&](const ModelRow* row) {
    return summarise(values_of(row->group, value))->mean;
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](const ModelRow* a, const ModelRow* b) { return mean(a) < mean(b); });
  for (size_t i = 0; i < order.size(); ++i) {
    std::string note = i + 1 < order.size() ? certainty(*order[i], *order[i + 1], value) : "";
    if (order[i]->health.collapsed > 0)
      note = "pathological: routers collapsed" + (note.empty() ? "" : "; " + note);
    const SeedValues values = values_of(order[i]->group, value);
    Ranking::Place& place = r.places.emplace_back();
    place = {.place = int64_t(i) + 1,
             .model = order[i]->group.name,
             .value = *summarise(values),
             .note = note};
    if (i > 0 && mean(order[i - 1]) == mean(order[i])) place.place = r.places[i - 1].place;
    if (i + 1 < order.size())
      place.to_next = paired_difference(values, values_of(order[i + 1]->group, value));
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

// "a was validated every 5 steps, b every 20" if the runs have different intervals; "" otherwise.
// A model that is looked at more often is seen earlier at its target. The landings of a contract
// and the last step, which are validated too, do not count here: equal intervals suffice.
std::string other_interval(const Comparison& c) {
  const RunRecord& first = *c.models.front().group.runs.front();
  for (const ModelRow& row : c.models) {
    for (const RunRecord* run : row.group.runs) {
      if (run->config.eval.every == first.config.eval.every) continue;
      return strprintf("%s was validated every %ld steps, %s every %ld", first.name.c_str(),
                       long(first.config.eval.every), run->name.c_str(),
                       long(run->config.eval.every));
    }
  }
  return "";
}

void rank_by_target(Comparison& c) {
  if (const std::string why = other_interval(c); !why.empty()) {
    c.notes.push_back("no ranking by the time to the target: " + why);
    if (c.rankings.empty()) c.no_ranking = why;
    return;
  }
  const double target = *c.target_loss;
  const auto by = [&](const char* what) { return strprintf("%s to %g nats", what, target); };
  const auto of = [target](const std::function<std::optional<double>(const TimeToTarget&)>& pick) {
    return [=](const RunRecord& run) -> std::optional<double> {
      const auto time = time_to_target(run, target);
      return time ? pick(*time) : std::nullopt;
    };
  };
  add_if_any(c, ranking(c, by("steps"), "steps",
                        of([](const TimeToTarget& t) { return double(t.steps); })));
  add_if_any(
      c, ranking(c, by("tokens"), "tokens", of([](const TimeToTarget& t) { return t.tokens; })));
  add_if_any(c,
             ranking(c, by("FLOPs"), "FLOPs", of([](const TimeToTarget& t) { return t.flops; })));
  if (const std::string why = other_machine_of_models(c); !why.empty()) {
    c.notes.push_back("no ranking by seconds: " + why);
    return;
  }
  add_if_any(c,
             ranking(c, by("seconds"), "s", of([](const TimeToTarget& t) { return t.seconds; })));
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
  for (const ModelRow& row : c.models) {
    if (row.unfinished.empty()) continue;
    c.no_ranking = row.unfinished.front() + " is not finished";
    return;
  }
  if (!stopped_at_target(c)) {
    add_if_any(c, ranking(c, "validation loss at the end", "nats",
                          [](const RunRecord& run) -> std::optional<double> {
                            const auto last = run.last_val();
                            return last ? std::optional(last->value) : std::nullopt;
                          }));
  }
  if (c.target_loss) rank_by_target(c);
  if (c.rankings.empty() && c.no_ranking.empty()) c.no_ranking = "no model has values to rank by";
}

}  // namespace assay
