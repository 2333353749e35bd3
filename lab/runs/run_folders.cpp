#include "lab/runs/run_folders.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/file.h"
#include "engine/run/run_dir.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// Also a run that has lost its configuration: the command names what is missing.
bool may_be_run(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "telemetry.db", ignored) || is_run(path);
}

}  // namespace

std::vector<std::string> runs_in(const std::vector<std::string>& paths) {
  std::vector<std::string> runs;
  for (const std::string& path : paths) {
    std::vector<std::string> found;
    if (may_be_run(path)) {
      found.push_back(path);
    } else {
      for (const std::string& name : names_in(path)) {
        const fs::path run = fs::path(path) / name;
        if (may_be_run(run)) found.push_back(run.string());
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
