// receipt.json: the claims of a run or a matrix, their inputs, and how each claim is recomputed.
// The schema is described in docs/receipts.md; adding a claim, or recomputing one in another way,
// raises kReceiptSchema.
//
// lab/receipt/make.h makes one, lab/receipt/verify.h checks one.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

namespace assay {

inline constexpr int kReceiptSchema = 1;
inline constexpr const char* kReceiptName = "receipt.json";

using ReceiptJson = nlohmann::ordered_json;

struct ReceiptInput {
  std::string kind;  // config, data, commit, binary, checkpoint, telemetry; of a matrix: run, file
  std::string path;  // from the receipt's folder; "" = outside of it
  std::string name;  // file name; for a commit its hash
  std::string sha256;                        // "" for a commit
  ReceiptJson more = ReceiptJson::object();  // further fields of this kind
};

struct Claim {
  std::string name;
  ReceiptJson value;  // a number; null = did not happen
  std::string unit;
  double tolerance = 0;
  // {"rule": NAME, arguments ...}: lab/receipt/run_claims.h, lab/receipt/bundle_claims.h.
  ReceiptJson how;
};

struct Receipt {
  std::string kind;  // "run" or "matrix"
  std::string name;
  std::string run;          // folder of the run, from the receipt's folder; "" for a matrix
  int64_t sealed_step = 0;  // telemetry is covered up to this step; 0 for a matrix
  ReceiptJson contract = ReceiptJson::object();
  ReceiptJson environment = ReceiptJson::object();
  std::vector<ReceiptInput> inputs;
  std::vector<Claim> claims;
  std::string seal;  // seal_of() at the time of writing
};

// A damaged receipt: cut short, or without a part of the schema.
struct DamagedReceipt : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// SHA-256 of everything except the seal, as JSON with sorted keys and without spaces.
std::string seal_of(const Receipt& receipt);

// The text of the file with its seal: one line per claim and per input.
std::string to_text(const Receipt& receipt);
void write_receipt(const std::string& path, const Receipt& receipt);

// UserError: not a receipt, or of a newer schema. Throws DamagedReceipt. The seal is read, not
// checked.
Receipt parse_receipt(const std::string& text, const std::string& name);
Receipt read_receipt(const std::string& path);

// Path of the receipt: the file itself, or receipt.json of a folder ("" = the current one).
// UserError if there is none.
std::string require_receipt(const std::string& file_or_folder);

}  // namespace assay
