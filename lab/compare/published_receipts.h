// The receipts that a study published of itself (NAME.receipts.json: post, title, status,
// artifacts, measurements), beside the figures of its text. docs/published/README.md has the form.
//
//   const PublishedReceipts receipts = read_published_receipts("repro/0003.receipts.json");
//   compare_receipts(published_study(receipts.post), receipts);
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/compare/published.h"

namespace assay {

struct ReceiptArtifact {
  std::string kind, path;
  std::string sha256;  // "" = the receipts have none
};

struct PublishedReceipts {
  std::string file;
  std::string post, title, status, time;
  std::vector<ReceiptArtifact> artifacts;
  nlohmann::ordered_json document;
};

// UserError if the file is not a JSON object with post, title and artifacts.
PublishedReceipts read_published_receipts(const std::string& file);

enum class ReceiptVerdict { kSame, kDiffers, kAbsent };
const char* receipt_verdict_name(ReceiptVerdict verdict);  // "same", "differs", "absent"

struct ReceiptFigure {
  std::string what;       // "closure matrix, bf16, dense: val_loss"
  std::string published;  // as printed
  std::string unit;
  std::string at;    // JSON pointer into the receipts
  double value = 0;  // there, in the figure's unit; 0 if absent
  ReceiptVerdict verdict = ReceiptVerdict::kAbsent;
};

// Every figure for which docs/published names a place in the receipts. The same: the value rounds
// to the digits that were printed.
std::vector<ReceiptFigure> compare_receipts(const PublishedStudy& study,
                                            const PublishedReceipts& receipts);

// Artifacts that are not in the folder, or whose SHA-256 is another than the receipts say.
struct ArtifactCheck {
  std::vector<ReceiptArtifact> missing, differing;
};
ArtifactCheck check_artifacts(const PublishedReceipts& receipts, const std::string& folder);

// folder: where the artifacts were looked for; "" = they were not.
std::string receipts_text(const PublishedReceipts& receipts,
                          const std::vector<ReceiptFigure>& figures, const std::string& folder);
nlohmann::ordered_json receipts_json(const PublishedReceipts& receipts,
                                     const std::vector<ReceiptFigure>& figures,
                                     const std::string& folder);

}  // namespace assay
