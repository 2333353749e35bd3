#include "lab/map/contract_map.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/joined.h"

namespace assay {
namespace {

// Endpoints of the model without this cost, and why the first of them has none; "" if all have one.
std::string lack_of(const MapModel& model, CostAxis axis, int64_t& count) {
  std::string why;
  count = 0;
  for (const Endpoint& e : model.endpoints) {
    if (e.of(axis).value) continue;
    if (count++ == 0) why = e.of(axis).missing;
  }
  return why;
}

MapPair pair_on(const EndpointSet& set, size_t first, size_t second, CostAxis axis, Better better) {
  MapPair pair{.first = first, .second = second, .absent = {}, .notes = {}, .on = {}};
  for (const size_t i : {first, second}) {
    const MapModel& model = set.models[i];
    int64_t count = 0;
    const std::string why = lack_of(model, axis, count);
    if (count == 0) continue;
    if (count == int64_t(model.endpoints.size())) {
      pair.absent = model.name + ": " + why;
      return pair;
    }
    pair.notes.push_back(strprintf("%s: %ld of its %zu endpoints are not here: %s",
                                   model.name.c_str(), long(count), model.endpoints.size(),
                                   why.c_str()));
  }
  const MapModel &a = set.models[first], &b = set.models[second];
  pair.absent = other_machine(a, b, axis);
  if (!pair.absent.empty()) return pair;
  pair.on = compare_on_axis(curves_of(a, axis), curves_of(b, axis), better);
  return pair;
}

MapAxis axis_of(const EndpointSet& set, CostAxis axis, Better better) {
  MapAxis on{.axis = axis, .absent = {}, .pairs = {}};
  if (axis == CostAxis::kMemory) {
    on.absent = "does not grow with training: one value for each model, in the table of the models";
    return on;
  }
  for (size_t i = 0; i < set.models.size(); ++i) {
    for (size_t k = i + 1; k < set.models.size(); ++k) {
      on.pairs.push_back(pair_on(set, i, k, axis, better));
    }
  }
  if (std::all_of(on.pairs.begin(), on.pairs.end(),
                  [](const MapPair& p) { return !p.absent.empty(); })) {
    on.absent = on.pairs.front().absent;
  }
  return on;
}

std::string range_text(const std::vector<SeedCurve>& curves) {
  double low = 0, high = 0;
  for (const SeedCurve& c : curves) {
    if (low == 0 || c.points.front().cost < low) low = c.points.front().cost;
    high = std::max(high, c.points.back().cost);
  }
  return low == high ? cost_text(low) : cost_text(low) + " to " + cost_text(high);
}

std::string no_budget_text(const ContractMap& map, CostAxis axis, const MapPair& pair) {
  const MapModel &a = map.set.models[pair.first], &b = map.set.models[pair.second];
  return a.name + " covers " + range_text(curves_of(a, axis)) + ", " + b.name + " " +
         range_text(curves_of(b, axis));
}

}  // namespace

std::vector<SeedCurve> curves_of(const MapModel& model, CostAxis axis) {
  std::vector<SeedCurve> curves;
  for (const int64_t seed : model.seeds()) {
    SeedCurve curve{.seed = seed, .points = {}};
    for (const Endpoint& e : model.endpoints) {
      const Spent& cost = e.of(axis);
      if (e.seed == seed && cost.value) {
        curve.points.push_back({.cost = *cost.value, .value = e.value});
      }
    }
    std::sort(curve.points.begin(), curve.points.end(),
              [](const CostPoint& a, const CostPoint& b) { return a.cost < b.cost; });
    if (!curve.points.empty()) curves.push_back(std::move(curve));
  }
  return curves;
}

std::string other_machine(const MapModel& a, const MapModel& b, CostAxis axis) {
  if (axis != CostAxis::kSeconds && axis != CostAxis::kJoules) return "";
  std::vector<const Endpoint*> before;
  for (const MapModel* model : {&a, &b}) {
    for (const Endpoint& e : model->endpoints) {
      if (!e.of(axis).value) continue;
      for (const Endpoint* other : before) {
        if (same_machine(other->machine, e.machine)) continue;
        return std::string(words_of(axis).name) +
               " of different machines: " + other->machine.text() + " in " + other->run + ", " +
               e.machine.text() + " in " + e.run;
      }
      before.push_back(&e);
    }
  }
  return "";
}

ContractMap contract_map(EndpointSet set, MapMeasure measure, const std::vector<CostAxis>& axes) {
  ContractMap map{.measure = measure, .set = std::move(set), .axes = {}};
  for (const CostAxis axis : axes) map.axes.push_back(axis_of(map.set, axis, map.better()));
  if (std::any_of(map.set.models.begin(), map.set.models.end(),
                  [](const MapModel& m) { return m.seeds().size() == 1; })) {
    map.set.notes.push_back(
        "a model with one seed has no interval: the seed may cause a difference");
  }
  return map;
}

std::string measure_title(MapMeasure measure) {
  return measure == MapMeasure::kCore ? "CORE" : "validation loss (nats per token)";
}

std::string cost_text(double cost) {
  return strprintf("%.4g", cost);
}

std::string budgets_text(const ContractMap& map, const MapPair& pair) {
  const std::string &a = map.set.models[pair.first].name, &b = map.set.models[pair.second].name;
  int64_t first = 0, second = 0, undecided = 0, ties = 0, single = 0, chords = 0;
  for (const BudgetRow& row : pair.on.budgets) {
    first += row.ahead == Ahead::kFirst;
    second += row.ahead == Ahead::kSecond;
    undecided += row.ahead == Ahead::kUndecided;
    ties += row.ahead == Ahead::kTie;
    single += row.is_order() && !row.decided();
    chords += row.by_chord();
  }
  const int64_t of = int64_t(pair.on.budgets.size());
  if (of == 0) return "no budget that both have";
  std::vector<std::string> parts;
  const auto add = [&](int64_t count, const std::string& what) {
    if (count > 0) parts.push_back(what + strprintf(" at %ld", long(count)));
  };
  add(first, a);
  add(second, b);
  add(undecided, "undecided");
  add(ties, "equal");
  std::string text = joined(parts, ", ") + strprintf(" of %ld", long(of));
  std::vector<std::string> doubts;
  if (single > 0) doubts.push_back(strprintf("%ld with one seed", long(single)));
  if (chords > 0) doubts.push_back(strprintf("%ld over ~", long(chords)));
  if (!doubts.empty()) {
    text += " (" + doubts.front() + (doubts.size() > 1 ? ", " + doubts.back() : "") + ")";
  }
  return text;
}

std::string crossing_text(const ContractMap& map, CostAxis axis, const MapPair& pair) {
  const PairOnAxis& on = pair.on;
  if (on.budgets.empty()) return no_budget_text(map, axis, pair);
  if (on.crossings.empty()) return "one shared budget: nothing lies between";
  double low = 0, high = 0;
  size_t with = 0;
  std::string at;
  for (const SeedCrossings& seed : on.crossings) {
    low = low == 0 ? seed.low : std::max(low, seed.low);
    high = high == 0 ? seed.high : std::min(high, seed.high);
    with += seed.at.empty() ? 0 : 1;
    for (const double cost : seed.at) at += (at.empty() ? "" : ", ") + cost_text(cost);
  }
  if (with == 0) return "none in [" + cost_text(low) + ", " + cost_text(high) + "]";
  if (!on.crossing) {
    if (turn_in_opposite_directions(on.crossings)) {
      return "in every seed once, but not in the same direction, at " + at;
    }
    return strprintf("not in every seed once: in %zu of %zu, at ", with, on.crossings.size()) + at;
  }
  const size_t then = on.crossings.front().to_first ? pair.first : pair.second;
  std::string text = cost_text(*on.crossing);
  if (on.crossing95) {
    text += " [" + cost_text(on.crossing95->low) + ", " + cost_text(on.crossing95->high) + "]";
  } else {
    text += on.crossings.size() > 1 ? std::string(" (") + kNoSpread + ")" : " (one seed)";
  }
  text += ", then " + map.set.models[then].name;
  return on.turns() || !on.crossing95 ? text : text + "; undecided: intervals include 0";
}

}  // namespace assay
