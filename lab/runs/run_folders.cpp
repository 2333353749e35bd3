#include "lab/runs/run_folders.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

bool is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "telemetry.db", ignored) || fs::exists(path / "config.yaml", ignored);
}

}  // namespace

std::vector<std::string> runs_in(const std::vector<std::string>& paths) {
  std::vector<std::string> runs;
  for (const std::string& path : paths) {
    std::vector<std::string> found;
    if (is_run(path)) {
      found.push_back(path);
    } else {
      for (const std::string& name : names_in(path)) {
        const fs::path run = fs::path(path) / name;
        if (is_run(run)) found.push_back(run.string());
      }
    }
    if (found.empty()) {
      throw UserError(path + " is no run and holds none", "give runs, or folders of runs");
    }
    std::sort(found.begin(), found.end());
    runs.insert(runs.end(), found.begin(), found.end());
  }
  return runs;
}

}  // namespace assay
