#include "engine/run_dir.h"

#include "base/check.h"

namespace assay {
namespace fs = std::filesystem;

std::filesystem::path require_run(const std::string& run) {
  std::error_code ignored;
  const char* hint =
      "give the directory of a run, e.g. runs/demo-moe; `assay train CONFIG` makes one";
  if (run.empty()) throw UserError("the name of the run is empty", hint);
  if (!fs::exists(run, ignored)) throw UserError("no run at " + run, hint);
  if (!fs::is_directory(run, ignored)) throw UserError(run + " is a file, not a run", hint);
  if (!fs::exists(fs::path(run) / "config.yaml", ignored)) {
    throw UserError(run + " is not a run: it has no config.yaml", hint);
  }
  return run;
}

}  // namespace assay
