// assay early-warning: which measure, early in a run, tells that its routers end collapsed.
#include "lab/router/early_warning.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/runs/run_folders.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct Arguments {
  std::vector<std::string> paths;
  bool json = false;
};

int run_early_warning(const Arguments& a) {
  const EarlyWarning warning = early_warning(runs_in(a.paths));
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
