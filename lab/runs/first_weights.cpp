#include "lab/runs/first_weights.h"

#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/run/run_dir.h"

namespace assay {

std::string imported_weights(const std::string& folder) {
  std::error_code ignored;
  const std::filesystem::path file = std::filesystem::path(folder) / kImportedFile;
  if (!std::filesystem::exists(file, ignored)) return "";
  const auto imported = json_of<nlohmann::ordered_json>(read_regular_file(file.string()));
  const bool has_weights =
      imported.is_object() && imported.contains(kWeightsHash) && imported[kWeightsHash].is_string();
  return has_weights ? imported[kWeightsHash].get<std::string>() : sha256_file(file.string());
}

bool began_from_imported(const RunRecord& run) {
  return !run.imported_sha256.empty();
}

std::string other_first_weights(std::span<const RunRecord> runs) {
  for (const RunRecord& run : runs) {
    const RunRecord& first = runs.front();
    if (run.imported_sha256 == first.imported_sha256) continue;
    const bool is_imported = began_from_imported(run);
    const RunRecord &imported = is_imported ? run : first, &other = is_imported ? first : run;
    return strprintf("%s began from imported weights (%s), %s from %s", imported.name.c_str(),
                     kImportedFile, other.name.c_str(),
                     began_from_imported(other) ? "others" : "its seed");
  }
  return "";
}

}  // namespace assay
