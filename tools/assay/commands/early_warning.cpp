// assay early-warning: which measure, early in a run, tells that its routers end collapsed.
#include "lab/router/early_warning.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

struct Arguments {
  std::vector<std::string> paths;
  bool json = false;
};

bool is_run(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path / "telemetry.db", ignored) && fs::exists(path / "config.yaml", ignored);
}

// The runs that are named, and those in a named folder, such as a matrix's.
std::vector<std::string> runs_of(const std::vector<std::string>& paths) {
  std::vector<std::string> runs;
  for (const std::string& path : paths) {
    std::vector<std::string> found;
    std::error_code failed;
    if (!is_run(path)) {
      for (const auto& entry : fs::directory_iterator(path, failed)) {
        if (is_run(entry.path())) found.push_back(entry.path().string());
      }
    }
    if (is_run(path)) found.push_back(path);
    if (found.empty()) {
      throw UserError(path + " is no run and holds none", "give runs, or folders of runs");
    }
    std::sort(found.begin(), found.end());
    runs.insert(runs.end(), found.begin(), found.end());
  }
  return runs;
}

int run_early_warning(const Arguments& a) {
  const EarlyWarning warning = early_warning(runs_of(a.paths));
  if (a.json) {
    print_json(early_warning_json(warning));
  } else {
    std::fputs(early_warning_text(warning).c_str(), stdout);
  }
  return kExitDone;
}

}  // namespace

void add_early_warning_command(Commands& commands) {
  auto a = std::make_shared<Arguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "early-warning", "which router measure, early in a run, tells that it ends collapsed");
  sub->add_option("RUNS", a->paths, "runs that ended, or folders of runs such as a matrix's")
      ->required();
  sub->add_flag("--json", a->json, "print one JSON object on stdout, with every measure");
  sub->footer(
      "Example:\n"
      "  assay early-warning runs/super-cpu runs/0004-mini\n"
      "Each bound is chosen on other runs than it is judged on. docs/early-warning.md has what "
      "came out for the recorded studies.");
  commands.on_chosen(sub, [a] { return run_early_warning(*a); });
}

}  // namespace assay
