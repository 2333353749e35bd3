// Checking a receipt against what it was made from: every hash, and every claim recomputed. What
// differs is drift; what is not there (data elsewhere, another build of the program, a checkpoint
// thrown away) is not available and says nothing against the receipt. All findings are listed, not
// only the first.
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
  std::string what;    // "claim val_loss_final", "input config config.yaml", "receipt"
  std::string detail;  // the value, or what differs
  std::string run;     // of a matrix: the folder of the run; "" = the matrix itself
};

struct VerifyOptions {
  std::vector<std::string>
      data;                    // folders to look for shards in, before the places the run had them
  std::string program_sha256;  // of this program
  std::string commit;          // it was built from
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
