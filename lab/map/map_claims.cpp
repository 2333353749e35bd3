#include "lab/map/map_claims.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "lab/compare/contract_quantity.h"
#include "lab/runs/text_table.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;
using Kind = MapClaim::Kind;

const char* kind_name(Kind kind) {
  switch (kind) {
    case Kind::kBelow:
      return "below";
    case Kind::kAbove:
      return "above";
    case Kind::kOvertakes:
      return "overtakes";
  }
  return "";
}

const MapModel& model_named(const ContractMap& map, const MapClaim& claim,
                            const std::string& name) {
  std::string known;
  for (const MapModel& model : map.set.models) {
    if (model.name == name) return model;
    known += (known.empty() ? "" : ", ") + model.name;
  }
  throw UserError(claim.where + ": the map has no model " + name, "its models are " + known);
}

// `of` minus the other at a budget, over the seeds that both have there.
struct Difference {
  std::optional<Summary> summary;
  bool interpolated = false;
};

bool is_endpoint(const SeedCurve& curve, double cost) {
  return std::any_of(curve.points.begin(), curve.points.end(), [&](const CostPoint& p) {
    return value_at({.seed = 0, .points = {p}}, cost).has_value();
  });
}

Difference difference_at(const std::vector<SeedCurve>& of, const std::vector<SeedCurve>& other,
                         double cost) {
  std::vector<double> values, others;
  Difference found;
  for (const SeedCurve& a : of) {
    for (const SeedCurve& b : other) {
      if (a.seed != b.seed) continue;
      const auto x = value_at(a, cost), y = value_at(b, cost);
      if (!x || !y) continue;
      values.push_back(*x);
      others.push_back(*y);
      found.interpolated |= !is_endpoint(a, cost) || !is_endpoint(b, cost);
    }
  }
  if (!values.empty()) found.summary = summarise_paired(values, others);
  return found;
}

ClaimVerdict verdict_on(Kind kind, const Summary& difference) {
  if (!difference.interval95) return ClaimVerdict::kUndecided;
  return claim_verdict(kind == Kind::kBelow ? ClaimRelation::kBelow : ClaimRelation::kAbove, 0, 0,
                       *difference.interval95);
}

const char* why_no_interval(int64_t seeds) {
  return seeds == 1 ? "one seed" : kNoSpread;
}

void judge_budget(MapClaimResult& result, const std::vector<SeedCurve>& of,
                  const std::vector<SeedCurve>& other) {
  const Difference found = difference_at(of, other, *result.claim.at);
  if (!found.summary) {
    result.why = "no seed of both reaches this budget";
    return;
  }
  result.difference = found.summary;
  result.interpolated = found.interpolated;
  result.verdict = verdict_on(result.claim.kind, *found.summary);
  if (!found.summary->interval95) result.why = why_no_interval(found.summary->n);
}

void judge_every_budget(MapClaimResult& result, const PairOnAxis& pair,
                        const std::vector<SeedCurve>& of, const std::vector<SeedCurve>& other) {
  int64_t holds = 0, fails = 0;
  for (const BudgetRow& row : pair.budgets) {
    const Difference found = difference_at(of, other, row.cost);
    CHECK(found.summary.has_value(), "no difference at the budget %g", row.cost);
    const ClaimVerdict one = verdict_on(result.claim.kind, *found.summary);
    holds += one == ClaimVerdict::kHolds;
    fails += one == ClaimVerdict::kFails;
    result.interpolated |= found.interpolated;
  }
  const int64_t all = int64_t(pair.budgets.size());
  result.why = all == 0 ? "the two share no budget"
                        : strprintf("%ld of %ld budgets", long(holds), long(all));
  if (fails > 0) result.why += strprintf(", fails at %ld", long(fails));
  if (fails > 0) result.verdict = ClaimVerdict::kFails;
  if (all > 0 && holds == all) result.verdict = ClaimVerdict::kHolds;
}

// pair: the other model first, so that "to_first" means that `of` falls behind.
void judge_crossing(MapClaimResult& result, const PairOnAxis& pair) {
  const MapClaim& c = result.claim;
  // As value_at() takes endpoints: whole steps meet a budget only nearly.
  const auto covers = [&](const SeedCrossings& s) {
    return s.low <= (1 + kHeldWithin) * c.from && s.high >= (1 - kHeldWithin) * c.to;
  };
  const bool covered = std::all_of(pair.crossings.begin(), pair.crossings.end(), covers);
  const char* not_covered = "; it says nothing of what lies beyond the endpoints of both";
  const auto none = [](const SeedCrossings& s) { return s.at.empty(); };
  if (pair.crossings.empty()) {
    result.why = "the two share no range of budgets";
  } else if (std::all_of(pair.crossings.begin(), pair.crossings.end(), none)) {
    result.why = "the order does not turn";
    if (covered && pair.crossings.size() > 1) {
      result.verdict = ClaimVerdict::kFails;
    } else {
      result.why += covered ? " (one seed)" : " where both have endpoints, which is not all of it";
    }
  } else if (!pair.crossing) {
    result.why = turn_in_opposite_directions(pair.crossings)
                     ? "it turns once in every seed, but not in the same direction"
                     : "it does not turn once in every seed";
  } else if (pair.crossings.front().to_first) {
    result.crossing = pair.crossing;
    result.crossing95 = pair.crossing95;
    result.why = "it turns the other way";
    if (!covered) result.why += not_covered;
    if (covered && pair.crossing95) result.verdict = ClaimVerdict::kFails;
  } else {
    result.crossing = pair.crossing;
    result.crossing95 = pair.crossing95;
    if (!pair.crossing95) {
      result.why = why_no_interval(int64_t(pair.crossings.size()));
    } else if (pair.crossing95->low >= c.from && pair.crossing95->high <= c.to) {
      if (!pair.turns()) {
        result.why = "it turns there, but no budget on both sides tells the two apart";
      } else if (!covered) {
        result.why = std::string("it turns there") + not_covered;
      } else {
        result.verdict = ClaimVerdict::kHolds;
      }
    } else if (!pair.crossing95->overlaps({.low = c.from, .high = c.to})) {
      if (covered) result.verdict = ClaimVerdict::kFails;
      if (!covered) result.why = std::string("it turns elsewhere") + not_covered;
    }
  }
}

std::string interval_text(const Interval& interval, const char* format) {
  return "[" + strprintf(format, interval.low) + ", " + strprintf(format, interval.high) + "]";
}

}  // namespace

std::string MapClaim::text() const {
  const AxisWords& words = words_of(along);
  const std::string pair = of + " " + kind_name(kind) + " " + other;
  if (kind == Kind::kOvertakes) {
    return pair + " at " + cost_text(from) + " to " + cost_text(to) + " " + words.title;
  }
  return pair + " at " + (at ? cost_text(*at) + " " : std::string("every budget of ")) +
         words.title;
}

std::vector<MapClaimResult> judge_map_claims(const std::vector<MapClaim>& claims,
                                             const ContractMap& map) {
  std::vector<MapClaimResult> results;
  for (const MapClaim& claim : claims) {
    const MapModel &of = model_named(map, claim, claim.of),
                   &other = model_named(map, claim, claim.other);
    MapClaimResult result;
    result.claim = claim;
    const auto a = curves_of(of, claim.along), b = curves_of(other, claim.along);
    result.why = other_machine(of, other, claim.along);
    for (const MapModel* model : {&of, &other}) {
      if (!result.why.empty() || !curves_of(*model, claim.along).empty()) continue;
      result.why = model->name + ": " + model->endpoints.front().of(claim.along).missing;
    }
    if (!result.why.empty()) {
      result.verdict = ClaimVerdict::kNoRun;
    } else if (claim.at) {
      judge_budget(result, a, b);
    } else if (claim.kind == Kind::kOvertakes) {
      judge_crossing(result, compare_on_axis(b, a, map.better()));
    } else {
      judge_every_budget(result, compare_on_axis(b, a, map.better()), a, b);
    }
    results.push_back(result);
  }
  return results;
}

std::vector<std::vector<std::string>> map_claim_rows(const std::vector<MapClaimResult>& results) {
  std::vector<std::vector<std::string>> rows = {{"claim", "verdict", "measured", "95% interval"}};
  for (const MapClaimResult& r : results) {
    std::string measured, interval;
    if (r.difference) {
      measured = strprintf("%+.4f%s", r.difference->mean, r.interpolated ? "~" : "");
      if (r.difference->interval95) interval = interval_text(*r.difference->interval95, "%+.4f");
    } else if (r.crossing) {
      measured = "turns at " + cost_text(*r.crossing);
      if (r.crossing95) interval = interval_text(*r.crossing95, "%.4g");
    }
    const bool given = r.claim.name != r.claim.text();
    rows.push_back({given ? r.claim.name + ": " + r.claim.text() : r.claim.text(),
                    claim_verdict_name(r.verdict) + (r.why.empty() ? "" : ": " + r.why), measured,
                    interval});
  }
  return rows;
}

std::string map_claims_text(const std::vector<MapClaimResult>& results) {
  if (results.empty()) return "";
  const auto rows = map_claim_rows(results);
  TextTable table(rows.front());
  for (size_t i = 1; i < rows.size(); ++i) table.add(rows[i]);
  int64_t holds = 0, fails = 0;
  for (const MapClaimResult& r : results) {
    holds += r.verdict == ClaimVerdict::kHolds;
    fails += r.verdict == ClaimVerdict::kFails;
  }
  return "\n" + table.text() +
         strprintf("%ld of %zu claims hold, %ld fail\n", long(holds), results.size(), long(fails));
}

Json map_claims_json(const std::vector<MapClaimResult>& results) {
  Json all = Json::array();
  for (const MapClaimResult& r : results) {
    const MapClaim& c = r.claim;
    Json json = {{"name", c.name},
                 {"of", c.of},
                 {"relation", kind_name(c.kind)},
                 {"other", c.other},
                 {"along", words_of(c.along).name}};
    if (c.kind == Kind::kOvertakes) {
      json["from"] = c.from;
      json["to"] = c.to;
    } else {
      json["at"] = c.at ? Json(*c.at) : Json("every");
    }
    json["verdict"] = claim_verdict_name(r.verdict);
    json["why"] = r.why.empty() ? Json() : Json(r.why);
    const auto interval = [](const std::optional<Interval>& i) {
      return i ? Json::array({i->low, i->high}) : Json();
    };
    json["difference"] = r.difference ? Json(r.difference->mean) : Json();
    json["difference95"] = r.difference ? interval(r.difference->interval95) : Json();
    json["interpolated"] = r.interpolated;
    json["crossing"] = r.crossing ? Json(*r.crossing) : Json();
    json["crossing95"] = interval(r.crossing95);
    all.push_back(json);
  }
  return all;
}

}  // namespace assay
