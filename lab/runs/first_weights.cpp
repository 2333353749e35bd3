#include "lab/runs/first_weights.h"

#include "base/check.h"
#include "engine/run/run_dir.h"

namespace assay {

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
