// What the claims of a matrix state (lab/matrix/claims.h judges them). In its file:
//
//   claims:
//     - {name: sparse wins, measure: val_loss, of: moe, below: dense}
//     - {measure: cv, of: e1024, near: 0.64, within: 0.1}
//     - {measure: val_loss, at: 0.2, of: moe, below: dense}        # at a share of each run's steps
//     - {measure: val_loss, of: moe, below: dense, contract: activeDN, precision: bf16}
//     - {measure: val_loss, of: moe, below: dense, across: [activeDN, totalDN]}
//     - {measure: val_loss, of: moe, below: dense, across: [0.2, 1]}
//     - {measure: val_loss, of: moe-8, above: dense, source: ours}
//
// across states how a comparison changes: the difference of the two models (or the value of one)
// under the second contract, precision or share minus that under the first.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "engine/config/choice.h"
#include "lab/runs/interval_claim.h"

namespace assay {

// Who makes a claim: the published study that the matrix repeats, a review of it, or the matrix's
// own author.
enum class ClaimSource { kPost, kReview, kOurs };
template <>
struct Choice<ClaimSource> {
  static constexpr const char* kNames[] = {"post", "review", "ours"};
};

struct ClaimAcross {
  enum class Over { kContracts, kPrecisions, kShares } over = Over::kContracts;
  std::string from, to;                 // names of the matrix; shares as they were given
  double from_share = 0, to_share = 0;  // with kShares
};

struct MatrixClaim {
  std::string name;     // as in the table; text() unless given
  std::string measure;  // one of lab/runs/run_measures.h
  std::string of;       // a model of the matrix
  using Relation = ClaimRelation;
  Relation relation = Relation::kBelow;
  std::string other;  // a model of the matrix; "" = compared with `number`
  double number = 0;
  double within = 0;                // with kNear
  std::optional<double> at;         // share of each run's planned steps; else as the measure says
  std::string contract, precision;  // where it is judged; "" = everywhere
  std::optional<ClaimAcross> across;
  std::optional<ClaimSource> source;  // as the file says
  std::string where;                  // file and line

  // "max_load of aux-only - baseline < 0", "val_loss at 20% of moe - dense, totalDN minus activeDN,
  // < 0".
  std::string text() const;
};

// What the claim states, which is sealed. Its source is no part of that: naming it afterwards is no
// edit of the claim.
nlohmann::ordered_json claim_statement(const MatrixClaim& claim);

// As in matrix.json, and back. nlohmann::json::exception or UserError if it is not a
// claim.
nlohmann::ordered_json claim_to_json(const MatrixClaim& claim);
MatrixClaim claim_of_json(const nlohmann::ordered_json& json);

}  // namespace assay
