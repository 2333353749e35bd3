// Makes receipts: of a run at its end, and of a matrix whose runs are folders beside or below its
// receipt.
//
//   write_receipt("runs/moe/receipt.json", make_run_receipt("runs/moe", "runs/moe"));
//
//   make_bundle_receipt({.folder = "runs/m", .name = "m", .runs = {"dense-seed-1", "moe-seed-1"},
//                        .files = {"matrix.yaml", "summary.csv"},
//                        .claims = {{"moe_val_loss_mean", "nats",
//                                    how_over_runs("mean", how_eval("val", "loss_nats", "last"),
//                                                  {...})}}});
//
// The value of each claim is computed here by the rule that later recomputes it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/receipt/bundle_claims.h"
#include "lab/receipt/receipt.h"

namespace assay {

// folder: the receipt's folder, which is the run's own or one above it. UserError: no run, a run
// that logged nothing, or a run outside of `folder`. step: the last one that is sealed; by default
// the last one logged.
Receipt make_run_receipt(const std::string& run, const std::string& folder,
                         std::optional<int64_t> step = {});

// The last step of a run that a process trains now of which every value is logged: the one before
// the newest, whose validation may still run. nullopt if no process trains it.
std::optional<int64_t> last_settled_step(const std::string& run);

struct Bundle {
  std::string folder;  // of the receipt; runs and files are named from here
  std::string name;
  std::vector<std::string> runs;   // each has its receipt.json
  std::vector<std::string> files;  // further inputs
  ReceiptJson contract = ReceiptJson::object();
  ReceiptJson environment = ReceiptJson::object();
  std::vector<ClaimSpec> claims;
};

// UserError: a run without a receipt, a file that is missing.
Receipt make_bundle_receipt(const Bundle& bundle);

// The `contract` of a run's receipt.
ReceiptJson contract_json(const Config& config);

}  // namespace assay
