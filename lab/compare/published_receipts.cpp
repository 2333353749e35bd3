#include "lab/compare/published_receipts.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "lab/compare/derivation.h"
#include "lab/runs/text_table.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr const char* kHint = "the receipts of a study are files such as repro/0003.receipts.json";

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
    text.replace(at, from.size(), to);
  }
  return text;
}

// "/results/{precision}/{model}" for a row: its keys, by the names that the receipts have for them.
std::string pointer_of(const std::string& pattern, const PublishedTable& table,
                       const std::vector<std::string>& keys, const Json& names) {
  std::string pointer = pattern;
  for (size_t k = 0; k < keys.size(); ++k) {
    const std::string name = text_or_empty(names, keys[k]);
    pointer = replaced(pointer, "{" + table.keys[k] + "}", name.empty() ? keys[k] : name);
  }
  return pointer;
}

ReceiptFigure compared(const PublishedReceipts& receipts, const Json& entry,
                       const std::string& pointer, ReceiptFigure figure) {
  figure.at = pointer;
  const Json::json_pointer at(pointer);
  if (!receipts.document.contains(at) || !receipts.document.at(at).is_number()) return figure;
  figure.value = receipts.document.at(at).get<double>() / entry.value("per", 1.0);
  const Range exact{figure.value, figure.value, figure.value};
  figure.verdict = is_same(exact, read_figure(figure.published)) ? ReceiptVerdict::kSame
                                                                 : ReceiptVerdict::kDiffers;
  return figure;
}

// The cells of one column, or of one of its rows.
void compare_column(const PublishedStudy& study, const PublishedReceipts& receipts,
                    const Json& entry, std::vector<ReceiptFigure>& figures) {
  const std::string title = entry.at("table"), key = entry.at("column");
  for (const PublishedTable& table : study.tables) {
    if (table.title != title) continue;
    const auto column = std::find_if(table.columns.begin(), table.columns.end(),
                                     [&](const PublishedColumn& c) { return c.key == key; });
    CHECK(column != table.columns.end(), "%s has no column %s", title.c_str(), key.c_str());
    const size_t c = table.keys.size() + size_t(column - table.columns.begin());
    for (const auto& row : table.rows) {
      std::vector<std::string> keys;
      for (size_t k = 0; k < table.keys.size(); ++k) keys.push_back(cell_text(row[k], nullptr));
      if (entry.contains("row") && entry["row"].get<std::vector<std::string>>() != keys) continue;
      if (!row[c].is_number()) continue;
      std::string what = title;
      for (const std::string& name : keys) what += ", " + name;
      figures.push_back(compared(receipts, entry,
                                 pointer_of(entry.at("at"), table, keys, study.receipt_names),
                                 {.what = what + ": " + key,
                                  .published = cell_text(row[c], &*column),
                                  .unit = column->unit,
                                  .at = ""}));
    }
  }
}

void compare_text(const PublishedStudy& study, const PublishedReceipts& receipts, const Json& entry,
                  std::vector<ReceiptFigure>& figures) {
  for (const PublishedFigure& check : study.checks) {
    if (!check.cell.empty() || check.what != entry.at("figure")) continue;
    figures.push_back(
        compared(receipts, entry, entry.at("at"),
                 {.what = check.what, .published = check.printed, .unit = check.unit, .at = ""}));
  }
}

int64_t count(const std::vector<ReceiptFigure>& figures, ReceiptVerdict verdict) {
  return std::count_if(figures.begin(), figures.end(),
                       [&](const ReceiptFigure& f) { return f.verdict == verdict; });
}

}  // namespace

const char* receipt_verdict_name(ReceiptVerdict verdict) {
  switch (verdict) {
    case ReceiptVerdict::kSame:
      return "same";
    case ReceiptVerdict::kDiffers:
      return "differs";
    case ReceiptVerdict::kAbsent:
      break;
  }
  return "absent";
}

PublishedReceipts read_published_receipts(const std::string& file) {
  const Json json = json_of<Json>(read_file(file));
  if (json.is_discarded()) throw UserError(file + " is not JSON", kHint);
  if (text_or_empty(json, "post").empty() || text_or_empty(json, "title").empty() ||
      !json.contains("artifacts") || !json["artifacts"].is_array()) {
    throw UserError(file + " lacks post, title or artifacts: it is not the receipts of a study",
                    kHint);
  }
  PublishedReceipts receipts{.file = file,
                             .post = text_or_empty(json, "post"),
                             .title = text_or_empty(json, "title"),
                             .status = text_or_empty(json, "status"),
                             .time = text_or_empty(json, "generated_at_utc"),
                             .artifacts = {},
                             .document = json};
  for (const Json& artifact : json["artifacts"]) {
    if (text_or_empty(artifact, "path").empty()) {
      throw UserError(file + ": an artifact has no path: " + artifact.dump(), kHint);
    }
    receipts.artifacts.push_back({text_or_empty(artifact, "kind"), text_or_empty(artifact, "path"),
                                  text_or_empty(artifact, "sha256")});
  }
  return receipts;
}

std::vector<ReceiptFigure> compare_receipts(const PublishedStudy& study,
                                            const PublishedReceipts& receipts) {
  std::vector<ReceiptFigure> figures;
  for (const Json& entry : study.receipt_places) {
    if (entry.contains("figure")) {
      compare_text(study, receipts, entry, figures);
    } else {
      compare_column(study, receipts, entry, figures);
    }
  }
  return figures;
}

ArtifactCheck check_artifacts(const PublishedReceipts& receipts, const std::string& folder) {
  ArtifactCheck check;
  for (const ReceiptArtifact& artifact : receipts.artifacts) {
    const std::string path = (fs::path(folder) / artifact.path).string();
    std::error_code ignored;
    if (!fs::exists(path, ignored)) {
      check.missing.push_back(artifact);
    } else if (!artifact.sha256.empty() && sha256_file(path) != artifact.sha256) {
      check.differing.push_back(artifact);
    }
  }
  return check;
}

namespace {

std::string artifacts_text(const PublishedReceipts& receipts, const std::string& folder) {
  const auto hashed = std::count_if(receipts.artifacts.begin(), receipts.artifacts.end(),
                                    [](const ReceiptArtifact& a) { return !a.sha256.empty(); });
  std::string text = strprintf("artifacts: %zu named, %ld with a SHA-256",
                               receipts.artifacts.size(), long(hashed));
  if (folder.empty()) return text + "; --artifacts FOLDER looks for them\n";
  const ArtifactCheck check = check_artifacts(receipts, folder);
  text += strprintf("; in %s %zu are missing, %zu have another SHA-256\n", folder.c_str(),
                    check.missing.size(), check.differing.size());
  for (const ReceiptArtifact& a : check.missing) {
    text += "  missing: " + a.path + " (" + a.kind + ")\n";
  }
  for (const ReceiptArtifact& a : check.differing) {
    text += "  another SHA-256: " + a.path + " (" + a.kind + ")\n";
  }
  return text;
}

Json paths_of(const std::vector<ReceiptArtifact>& artifacts) {
  Json paths = Json::array();
  for (const ReceiptArtifact& a : artifacts) paths.push_back(a.path);
  return paths;
}

}  // namespace

std::string receipts_text(const PublishedReceipts& receipts,
                          const std::vector<ReceiptFigure>& figures, const std::string& folder) {
  std::string text = "receipts of " + receipts.post + ": " + receipts.title;
  for (const std::string& more : {receipts.status, receipts.time}) {
    if (!more.empty()) text += ", " + more;
  }
  text += "\n";
  TextTable table({"figure", "published", "in the receipts", "verdict"});
  for (const ReceiptFigure& f : figures) {
    const bool absent = f.verdict == ReceiptVerdict::kAbsent;
    table.add({f.unit.empty() ? f.what : f.what + ", " + f.unit, f.published,
               absent ? "" : strprintf("%.10g", f.value), receipt_verdict_name(f.verdict)});
  }
  if (figures.empty()) {
    text += "no figure of the study has a place in its receipts\n";
  } else {
    text +=
        "\n" + table.text() + "\n" +
        strprintf("%ld same, %ld differ, %ld absent\n", long(count(figures, ReceiptVerdict::kSame)),
                  long(count(figures, ReceiptVerdict::kDiffers)),
                  long(count(figures, ReceiptVerdict::kAbsent)));
  }
  return text + artifacts_text(receipts, folder);
}

Json receipts_json(const PublishedReceipts& receipts, const std::vector<ReceiptFigure>& figures,
                   const std::string& folder) {
  Json json;
  json["post"] = receipts.post;
  json["title"] = receipts.title;
  json["status"] = receipts.status;
  json["generated_at_utc"] = receipts.time;
  json["same"] = count(figures, ReceiptVerdict::kSame);
  json["differ"] = count(figures, ReceiptVerdict::kDiffers);
  json["absent"] = count(figures, ReceiptVerdict::kAbsent);
  json["figures"] = Json::array();
  for (const ReceiptFigure& f : figures) {
    Json one;
    one["what"] = f.what;
    one["published"] = f.published;
    one["unit"] = f.unit;
    one["at"] = f.at;
    one["value"] = f.verdict == ReceiptVerdict::kAbsent ? Json() : Json(f.value);
    one["verdict"] = receipt_verdict_name(f.verdict);
    json["figures"].push_back(one);
  }
  json["artifacts"] = receipts.artifacts.size();
  json["missing"] = json["differing"] = Json();
  if (!folder.empty()) {
    const ArtifactCheck check = check_artifacts(receipts, folder);
    json["missing"] = paths_of(check.missing);
    json["differing"] = paths_of(check.differing);
  }
  return json;
}

}  // namespace assay
