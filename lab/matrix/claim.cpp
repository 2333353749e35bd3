#include "lab/matrix/claim.h"

#include <array>
#include <nlohmann/json.hpp>

#include "base/check.h"

namespace assay {
namespace {

using nlohmann::ordered_json;
using Relation = MatrixClaim::Relation;
using Over = ClaimAcross::Over;

constexpr std::array<const char*, 3> kOver = {"contracts", "precisions", "shares"};

Over over_named(const std::string& name) {
  for (size_t i = 0; i < kOver.size(); ++i) {
    if (name == kOver.at(i)) return Over(i);
  }
  throw UserError("a claim goes across " + name, "contracts, precisions or shares");
}

std::string share_text(double share) {
  return strprintf("%.4g%%", 100 * share);
}

}  // namespace

std::string MatrixClaim::text() const {
  std::string what = measure;
  if (at) what += " at " + share_text(*at);
  what += " of " + of + (other.empty() ? "" : " - " + other);
  if (across) {
    const bool shares = across->over == Over::kShares;
    what += ", " + (shares ? share_text(across->to_share) : across->to) + " minus " +
            (shares ? share_text(across->from_share) : across->from) + ",";
  }
  if (relation != Relation::kNear) {
    return what + strprintf(" %s %g", relation == Relation::kBelow ? "<" : ">", number);
  }
  return what + (number == 0 ? "" : strprintf(" - %g", number)) + strprintf(" within +-%g", within);
}

ordered_json claim_statement(const MatrixClaim& claim) {
  ordered_json j;
  j["name"] = claim.name;
  j["measure"] = claim.measure;
  j["of"] = claim.of;
  j["relation"] = claim_relation_name(claim.relation);
  j["other"] = claim.other;
  j["number"] = claim.number;
  j["within"] = claim.within;
  if (claim.at) j["at"] = *claim.at;
  if (!claim.contract.empty()) j["contract"] = claim.contract;
  if (!claim.precision.empty()) j["precision"] = claim.precision;
  if (claim.across) {
    ordered_json across;
    across["over"] = kOver.at(size_t(claim.across->over));
    across["from"] = claim.across->from;
    across["to"] = claim.across->to;
    if (claim.across->over == Over::kShares) {
      across["from_share"] = claim.across->from_share;
      across["to_share"] = claim.across->to_share;
    }
    j["across"] = across;
  }
  return j;
}

ordered_json claim_to_json(const MatrixClaim& claim) {
  ordered_json j = claim_statement(claim);
  if (claim.source) j["source"] = name_of(*claim.source);
  return j;
}

MatrixClaim claim_of_json(const ordered_json& json) {
  MatrixClaim claim;
  claim.name = json.at("name");
  claim.measure = json.at("measure");
  claim.of = json.at("of");
  claim.relation = claim_relation_named(json.at("relation"));
  claim.other = json.at("other");
  claim.number = json.at("number");
  claim.within = json.at("within");
  if (json.contains("at")) claim.at = json.at("at").get<double>();
  claim.contract = json.value("contract", "");
  claim.precision = json.value("precision", "");
  if (json.contains("across")) {
    const ordered_json& across = json.at("across");
    claim.across = ClaimAcross{.over = over_named(across.at("over")),
                               .from = across.at("from"),
                               .to = across.at("to"),
                               .from_share = across.value("from_share", 0.0),
                               .to_share = across.value("to_share", 0.0)};
  }
  claim.source = choice_named<ClaimSource>(json.value("source", ""));
  return claim;
}

}  // namespace assay
