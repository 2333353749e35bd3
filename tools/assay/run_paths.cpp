#include "tools/assay/run_paths.h"

#include <cstdio>

#include "base/check.h"
#include "lab/matrix/folder.h"

namespace assay {

void note_left_out(const std::string& path, const std::string& why) {
  std::fprintf(stderr, "note: left out: %s: %s\n", path.c_str(), why.c_str());
}

std::vector<std::string> run_paths(const std::vector<std::string>& given) {
  std::vector<std::string> runs;
  for (const std::string& path : given) {
    if (is_beside_matrix_runs(path)) {
      note_left_out(path, "no run, but a folder of its matrix");
    } else {
      runs.push_back(path);
    }
  }
  if (runs.empty() && !given.empty()) {
    throw UserError("nothing is left: " + given.front() + " is no run, but a folder of its matrix",
                    "give the folder of the matrix, or runs in it");
  }
  return runs;
}

}  // namespace assay
