#include "lab/page/matrix.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "lab/matrix/folder.h"
#include "lab/matrix/report.h"
#include "lab/matrix/summary.h"

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

Json report_matrix(const std::string& folder) {
  const RecordedMatrix recorded = read_matrix_folder(folder);
  const MatrixSummary summary = summarise_matrix(recorded.matrix, MatrixFolder(folder));
  Json json = Json::parse(summary_json(summary));
  json["folder"] = folder;
  json["notes"] = recorded.notes;
  for (size_t i = 0; i < summary.tables.size(); ++i) {
    json["contracts"][i]["says"] = contract_text(summary.tables[i].contract);
  }
  return json;
}

}  // namespace assay
