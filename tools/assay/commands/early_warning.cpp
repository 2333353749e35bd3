// assay early-warning: which measure, early in a run, tells that its routers end collapsed, or how
// one rule of telemetry.collapse_stop does on recorded runs.
#include "lab/router/early_warning.h"

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "lab/router/guard_rule.h"
#include "lab/runs/run_folders.h"
#include "tools/assay/commands.h"
#include "tools/assay/print_json.h"

namespace assay {
namespace {

struct EarlyWarningArguments {
  std::vector<std::string> paths;
  std::optional<std::string> rule;
  bool json = false;
};

// A measure of the routers, or the rule of --rule.
template <typename Result>
void show(const Result& result, bool json, std::string (*text)(const Result&),
          nlohmann::ordered_json (*as_json)(const Result&)) {
  if (json) {
    print_json(as_json(result));
  } else {
    std::fputs(text(result).c_str(), stdout);
  }
}

int run_early_warning(const EarlyWarningArguments& a) {
  if (a.rule) {
    const CollapseStopConfig rule = read_guard_rule(*a.rule);
    show(guard_rule(rule, runs_in(a.paths)), a.json, guard_rule_text, guard_rule_json);
  } else {
    show(early_warning(runs_in(a.paths)), a.json, early_warning_text, early_warning_json);
  }
  return kExitDone;
}

}  // namespace

void add_early_warning_command(Commands& commands) {
  auto a = std::make_shared<EarlyWarningArguments>();
  CLI::App* sub = commands.app.add_subcommand(
      "early-warning", "which router measure, early in a run, tells that it ends collapsed");
  sub->add_option("RUNS", a->paths,
                  "runs that ended, or folders of runs such as a matrix's; the runs of one folder "
                  "are a study")
      ->required();
  sub->add_option("--rule", a->rule,
                  "judge this rule of telemetry.collapse_stop by the guard's own code instead of "
                  "all measures: '{measure: ..., at_most: ..., layers: ..., for: ..., from: ...}', "
                  "or auto");
  sub->add_flag("--json", a->json, "print one JSON object on stdout, with every measure or run");
  sub->footer(
      "Examples:\n"
      "  assay early-warning runs/super-cpu runs/0004-mini\n"
      "  assay early-warning runs/super-cpu --rule auto\n"
      "  assay early-warning runs/0004-mini --rule '{measure: gini, at_least: 0.6}'\n"
      "Each bound is chosen on other runs than it is judged on. docs/early-warning.md has what "
      "came out for the recorded studies.");
  commands.on_chosen(sub, [a] { return run_early_warning(*a); });
}

}  // namespace assay
