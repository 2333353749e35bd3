// Claims about a contract map, stated in a file and judged on the endpoints:
//
//   - {name: sparse wins per token, of: moe-64, below: dense, along: tokens, at: 2e7}
//   - {of: moe-64, below: dense, along: p_total, at: every}
//   - {of: moe-64, overtakes: dense, along: p_active, from: 0.4, to: 1}
//
// below, above: the map's measure of `of` minus that of the other model, seed by seed, at a budget,
// or at every budget that both have. The verdict follows from Student's 95% interval
// (lab/runs/interval_claim.h); at every budget a claim holds if it holds at each, and fails if it
// fails at one.
//
// overtakes: `of` is behind at small budgets, ahead at large ones, and the order turns in from..to.
// Holds if the interval of the crossing lies within, the endpoints reach over all of it, and each
// of the two is ahead at a budget (PairOnAxis::turns()); fails if it lies outside, if the order
// turns the other way, or if no seed's order turns although the endpoints reach over all of
// from..to.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/map/contract_map.h"
#include "lab/runs/interval_claim.h"

namespace assay {

struct MapClaim {
  enum class Kind { kBelow, kAbove, kOvertakes };
  std::string name;  // text() unless given
  std::string of, other;
  Kind kind = Kind::kBelow;
  CostAxis along = CostAxis::kTokens;
  std::optional<double> at;  // absent: at every budget; not of kOvertakes
  double from = 0, to = 0;   // of kOvertakes
  std::string where;         // file and line

  std::string text() const;  // "moe-64 below dense at 2e+07 training tokens"
};

struct MapClaimResult {
  MapClaim claim;
  ClaimVerdict verdict = ClaimVerdict::kUndecided;
  std::string why;  // of a verdict that no interval gives, or how many budgets decided it
  // The difference at the budget, or where the order turns; absent at every budget.
  std::optional<Summary> difference;
  std::optional<double> crossing;
  std::optional<Interval> crossing95;
  bool interpolated = false;  // a difference with a value between two endpoints
};

// UserError naming the line, for what is no claim.
std::vector<MapClaim> read_map_claims(const std::string& path);
// UserError for a claim about a model that the map does not have.
std::vector<MapClaimResult> judge_map_claims(const std::vector<MapClaim>& claims,
                                             const ContractMap& map);

// A table, and a line that counts; "" without results. The first row has the heads.
std::vector<std::vector<std::string>> map_claim_rows(const std::vector<MapClaimResult>& results);
std::string map_claims_text(const std::vector<MapClaimResult>& results);
nlohmann::ordered_json map_claims_json(const std::vector<MapClaimResult>& results);

}  // namespace assay
