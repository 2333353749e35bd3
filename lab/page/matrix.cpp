#include "lab/page/matrix.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "data/json_text.h"
#include "lab/compare/derivation.h"
#include "lab/compare/published.h"
#include "lab/matrix/folder.h"
#include "lab/matrix/report.h"
#include "lab/matrix/summary.h"
#include "lab/matrix/table_contract.h"

namespace assay {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

std::vector<std::string> matrix_runs(const std::string& folder) {
  const Matrix matrix = read_matrix_folder(folder).matrix;
  std::vector<std::string> runs;
  for (const Cell& cell : matrix.cells) {
    const std::string run = (fs::path(folder) / cell.run).string();
    std::error_code ignored;
    if (!fs::exists(run + "/config.yaml", ignored)) continue;
    if (std::find(runs.begin(), runs.end(), run) == runs.end()) runs.push_back(run);
  }
  if (runs.empty()) {
    throw UserError(folder + ": no run of the matrix has begun",
                    "train it: assay matrix " + matrix.file.path);
  }
  return runs;
}

namespace {

// "bf16" of the row bf16, moe-64: every key but the last, which names the lane.
std::string group_of(const PublishedTable& table, const std::vector<Json>& row) {
  std::string name;
  for (size_t k = 0; k + 1 < table.keys.size(); ++k) {
    name += (name.empty() ? "" : ", ") + cell_text(row[k], nullptr);
  }
  return name;
}

// Whether a lane ran to its last step without reaching the target (column "end").
bool missed_target(const PublishedTable& table, const std::vector<Json>& row) {
  for (size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].key == "end") return row[table.keys.size() + c] == "full";
  }
  return false;
}

// The lanes of one column, by group, in the order of the table. Steps only of lanes that reached
// the target, where the table says so.
Json column_groups(const PublishedTable& table, size_t column) {
  const bool of_steps = table.columns[column].measure == "stop_step";
  Json groups = Json::array();
  for (const std::vector<Json>& row : table.rows) {
    if (of_steps && missed_target(table, row)) continue;
    const Json& value = row[table.keys.size() + column];
    if (!value.is_number()) continue;
    const std::string name = group_of(table, row);
    if (groups.empty() || groups.back()["name"] != name) {
      groups.push_back({{"name", name}, {"lanes", Json::array()}});
    }
    groups.back()["lanes"].push_back(
        {{"name", cell_text(row[table.keys.size() - 1], nullptr)}, {"value", value}});
  }
  return groups;
}

// What the study of this matrix measured at the end of its lanes; null if it is of no study.
Json published_lanes(const std::string& matrix) {
  const std::string name = study_of_matrix(matrix);
  if (name.empty()) return nullptr;
  const PublishedStudy study = published_study(name);
  const PublishedTable& table = study.tables.front();
  Json json = {{"name", name}, {"title", study.title}, {"measures", Json::array()}};
  for (size_t c = 0; c < table.columns.size(); ++c) {
    const PublishedColumn& column = table.columns[c];
    if (column.measure.empty() || column.step) continue;
    json["measures"].push_back({{"measure", column.measure},
                                {"what", column.what},
                                {"unit", column.unit},
                                {"groups", column_groups(table, c)}});
  }
  return json;
}

}  // namespace

Json report_matrix(const std::string& folder) {
  const RecordedMatrix recorded = read_matrix_folder(folder);
  const MatrixSummary summary = summarise_matrix(recorded.matrix, MatrixFolder(folder));
  Json json = json_or_throw<Json>(summary_json(summary));
  json["folder"] = folder;
  json["notes"] = recorded.notes;
  if (!summary.trained_validation.empty())
    json["notes"].push_back(summary.trained_validation + ".");
  json["unread"] = Json::array();
  for (const UserError& unread : summary.unread) {
    json["notes"].push_back(unread.what());
    json["unread"].push_back(unread.what());
  }
  json["published"] = published_lanes(recorded.matrix.file.name);
  for (size_t i = 0; i < summary.tables.size(); ++i) {
    json["contracts"][i]["says"] = contract_text(summary.tables[i].contract, recorded.matrix);
  }
  return json;
}

}  // namespace assay
