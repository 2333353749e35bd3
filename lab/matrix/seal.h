// The seal of a matrix's claims: what they were before its first run, kept in matrix.json, so that
// a claim written after the results is seen as such.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/matrix/claim.h"

namespace assay {

// An edit after a run had begun. Claims by their labels; a changed claim is removed and added.
struct ClaimEdit {
  std::string time;  // UTC
  int64_t runs_finished = 0;
  std::vector<std::string> added, removed;
};

// Other models, seeds or contracts after a run had finished: the claims are the same, but judged by
// other runs than they were made for.
struct CellsEdit {
  std::string time;  // UTC
  int64_t runs_finished = 0;
  std::string what;  // "8 cells changed (optimizer.lr: 0.003 -> 0.006); 2 added (a, b)"
};

struct ClaimSeal {
  std::string time;        // UTC, when the claims were first recorded
  std::string sha256;      // of the claims as they are now
  int64_t runs_begun = 0;  // at that time, with those taken over from elsewhere
  std::vector<ClaimEdit> edits;
  std::vector<CellsEdit> cell_edits = {};

  // Runs that had finished when the claim was last added after the seal, or had begun at a seal
  // that came late; nullopt if it is as it was sealed before the first.
  std::optional<int64_t> added_after(const MatrixClaim& claim) const;
};

// SHA-256 of what the claims state, without their places in the file and their sources.
std::string claims_sha256(const std::vector<MatrixClaim>& claims);

// "sparse wins", "sparse wins (activeDN, bf16)": with the contract and precision of the claim,
// since claims that are judged in different places may have one name.
std::string claim_label(const MatrixClaim& claim);

struct ClaimChanges {
  std::vector<std::string> added, removed;  // labels
  bool any() const { return !added.empty() || !removed.empty(); }
};
ClaimChanges claim_changes(const std::vector<MatrixClaim>& before,
                           const std::vector<MatrixClaim>& now);

// "Sealed before the first run (2026-11-23T22:10:00Z, SHA-256 12ab34cd56ef7890)." and one sentence
// for each edit of the claims, then of the cells.
std::string seal_text(const ClaimSeal& seal);

nlohmann::ordered_json seal_to_json(const ClaimSeal& seal);
ClaimSeal seal_of_json(const nlohmann::ordered_json& json);

}  // namespace assay
