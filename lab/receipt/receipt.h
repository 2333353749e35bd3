// receipt.json: what is claimed of a run or a matrix, from which inputs, and how each claim is
// recomputed. The schema is described in docs/receipts.md; a claim that is added, or recomputed in
// another way, raises kReceiptSchema.
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
  std::string name;  // of the file, or of what has no file
  std::string sha256;                        // "" of a commit
  ReceiptJson more = ReceiptJson::object();  // further fields of this kind
};

struct Claim {
  std::string name;
  ReceiptJson value;  // a number; null = did not happen
  std::string unit;
  double tolerance = 0;
  ReceiptJson
      how;  // {"rule": NAME, arguments ...}: lab/receipt/run_claims.h, lab/receipt/bundle_claims.h
};

struct Receipt {
  std::string kind;  // "run" or "matrix"
  std::string name;
  std::string run;          // folder of the run, from the receipt's folder; "" of a matrix
  int64_t sealed_step = 0;  // telemetry up to here; 0 of a matrix
  ReceiptJson contract = ReceiptJson::object();
  ReceiptJson environment = ReceiptJson::object();
  std::vector<ReceiptInput> inputs;
  std::vector<Claim> claims;
  std::string seal;  // seal_of() when it was written
};

// A file that was a receipt and is one no more: cut short, or without a part of the schema.
struct DamagedReceipt : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// SHA-256 of everything but the seal itself, as JSON with sorted keys and without spaces.
std::string seal_of(const Receipt& receipt);

// The file's text, sealed: one line a claim and one line an input.
std::string to_text(const Receipt& receipt);
void write_receipt(const std::string& path, const Receipt& receipt);

// UserError: not a receipt, or of a newer schema. DamagedReceipt. The seal is read, not checked.
Receipt parse_receipt(const std::string& text, const std::string& name);
Receipt read_receipt(const std::string& path);

// FILE, or the receipt.json of a folder. UserError when there is none.
std::string require_receipt(const std::string& file_or_folder);

}  // namespace assay
