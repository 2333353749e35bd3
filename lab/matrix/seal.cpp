#include "lab/matrix/seal.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/json_text.h"
#include "data/sha256.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

// The claims in `of` that `other` does not have as they are.
std::vector<std::string> labels_without(const std::vector<MatrixClaim>& of,
                                        const std::vector<MatrixClaim>& other) {
  std::vector<std::string> labels;
  for (const MatrixClaim& claim : of) {
    const ordered_json statement = claim_statement(claim);
    const bool found = std::any_of(other.begin(), other.end(), [&](const MatrixClaim& one) {
      return claim_statement(one) == statement;
    });
    if (!found) labels.push_back(claim_label(claim));
  }
  return labels;
}

std::string list_text(const char* what, const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + ("\"" + name + "\"");
  return text.empty() ? "" : std::string(what) + " " + text;
}

const char* runs_word(int64_t runs) {
  return runs == 1 ? "run" : "runs";
}

}  // namespace

std::optional<int64_t> ClaimSeal::added_after(const MatrixClaim& claim) const {
  std::optional<int64_t> runs;
  if (runs_begun > 0) runs = runs_begun;
  for (const ClaimEdit& edit : edits) {
    for (const std::string& added : edit.added) {
      // Version 0.2.0 recorded the bare name.
      if (added == claim_label(claim) || added == claim.name) runs = edit.runs_finished;
    }
  }
  return runs;
}

std::string claim_label(const MatrixClaim& claim) {
  std::string where = claim.contract;
  if (!claim.precision.empty()) where += (where.empty() ? "" : ", ") + claim.precision;
  return claim.name + (where.empty() ? "" : " (" + where + ")");
}

std::string claims_sha256(const std::vector<MatrixClaim>& claims) {
  ordered_json all = ordered_json::array();
  for (const MatrixClaim& claim : claims) all.push_back(claim_statement(claim));
  return sha256_hex(json_text(all));
}

ClaimChanges claim_changes(const std::vector<MatrixClaim>& before,
                           const std::vector<MatrixClaim>& now) {
  return {.added = labels_without(now, before), .removed = labels_without(before, now)};
}

std::string seal_text(const ClaimSeal& seal) {
  const std::string when = seal.time + ", " + short_hash(seal.sha256);
  std::string text = seal.runs_begun == 0
                         ? "Sealed before the first run (" + when + ")."
                         : strprintf("Recorded when %ld %s had begun (", long(seal.runs_begun),
                                     runs_word(seal.runs_begun)) +
                               when + ").";
  for (const ClaimEdit& edit : seal.edits) {
    const std::string added = list_text("added", edit.added),
                      removed = list_text("removed", edit.removed);
    text += strprintf(" Edited %s, when %ld %s had finished: ", edit.time.c_str(),
                      long(edit.runs_finished), runs_word(edit.runs_finished)) +
            added + (added.empty() || removed.empty() ? "" : "; ") + removed + ".";
  }
  for (const CellsEdit& edit : seal.cell_edits) {
    text += strprintf(" The runs were edited %s, when %ld %s had finished: ", edit.time.c_str(),
                      long(edit.runs_finished), runs_word(edit.runs_finished)) +
            edit.what + ".";
  }
  return text;
}

ordered_json seal_to_json(const ClaimSeal& seal) {
  ordered_json j;
  j["time"] = seal.time;
  j["sha256"] = seal.sha256;
  j["runs_begun"] = seal.runs_begun;
  j["edits"] = ordered_json::array();
  for (const ClaimEdit& edit : seal.edits) {
    ordered_json e;
    e["time"] = edit.time;
    e["runs_finished"] = edit.runs_finished;
    e["added"] = edit.added;
    e["removed"] = edit.removed;
    j["edits"].push_back(e);
  }
  for (const CellsEdit& edit : seal.cell_edits) {
    ordered_json e;
    e["time"] = edit.time;
    e["runs_finished"] = edit.runs_finished;
    e["what"] = edit.what;
    j["cell_edits"].push_back(e);
  }
  return j;
}

ClaimSeal seal_of_json(const ordered_json& json) {
  ClaimSeal seal{.time = json.at("time"),
                 .sha256 = json.at("sha256"),
                 .runs_begun = json.at("runs_begun"),
                 .edits = {}};
  for (const ordered_json& edit : json.at("edits")) {
    seal.edits.push_back({.time = edit.at("time"),
                          .runs_finished = edit.at("runs_finished"),
                          .added = edit.at("added"),
                          .removed = edit.at("removed")});
  }
  if (!json.contains("cell_edits")) return seal;  // of an earlier version, or none
  for (const ordered_json& edit : json.at("cell_edits")) {
    seal.cell_edits.push_back({.time = edit.at("time"),
                               .runs_finished = edit.at("runs_finished"),
                               .what = edit.at("what")});
  }
  return seal;
}

}  // namespace assay
