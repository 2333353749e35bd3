// Checks a receipt against its inputs: compares every hash and recomputes every claim. A difference
// is drift; a missing input (data elsewhere, another build of the program, a deleted checkpoint) is
// not available and does not count against the receipt. All findings are listed, not only the
// first.
//
//   const Verification v = verify_receipt("runs/moe", {.program_sha256 = ..., .commit = ...});
//   if (v.count(Finding::kDrift) > 0) ...
#pragma once

#include <string>
#include <vector>

#include "lab/receipt/receipt.h"

namespace assay {

enum class Finding { kSame, kNotAvailable, kDrift };
const char* finding_name(Finding finding);  // "same", "not available", "drift"

struct Check {
  Finding finding = Finding::kSame;
  std::string what;       // "claim val_loss_final", "input config config.yaml", "receipt"
  std::string detail;     // the value, or what differs
  std::string run;        // in a matrix: the folder of the run; "" = the matrix itself
  bool no_data = false;   // a file of the run's data is nowhere: --data names where else to look
  bool is_rerun = false;  // the run was trained again, or should have been
};

struct VerifyOptions {
  std::vector<std::string> data;  // folders searched for shards before their recorded places
  std::string program_sha256;     // of this program
  std::string commit;             // of this program
};

struct Verification {
  std::string path;  // of receipt.json
  std::string kind, name;
  std::vector<Check> checks;

  int64_t count(Finding finding) const;
};

// UserError: no receipt, not a receipt, a newer schema.
Verification verify_receipt(const std::string& file_or_folder, const VerifyOptions& options);

}  // namespace assay
