// assay early-warning --rule: a rule of telemetry.collapse_stop judged over recorded runs.
// CollapseGuard is given the logged steps of each run in order, as it was while the run trained; a
// run counts as stopped if the rule holds before its last step.
//
// Beside the rule as it is given, its bound is chosen by the procedure of early_warning.h: of each
// run the bound at which the rule only just holds is a value like that of a measure, so that the
// best bound, and the counts with configurations and studies left out, come in the same way.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "lab/router/early_warning.h"

namespace assay {

// One logged step: the rule's measure by layer.
struct LoggedStep {
  int64_t step = 0;
  std::vector<LayerValue> values;
};

struct GuardRun {
  WarningRun run;
  std::vector<int64_t> layers;  // block indices of the MoE layers
  std::vector<LoggedStep> logged;
  std::optional<int64_t> stops_at = {};  // the step after which the rule stops it

  double saved()
      const;  // share of its steps that stopping would have saved; 0 if it is not stopped
};

// The step after which the guard stops the run; nullopt: it does not.
std::optional<int64_t> stop_of(const CollapseStopConfig& rule, const GuardRun& run);
// The bound in [0, 1], to 2^-40, at which the rule only just stops the run; nullopt: at none, as it
// has too few logged steps.
std::optional<double> critical_bound(const CollapseStopConfig& rule, const GuardRun& run);

struct GuardJudgement {
  CollapseStopConfig rule;
  std::vector<GuardRun> runs;
  std::vector<RunLeftOut> left_out;
  WarningCounts counts;                           // of the rule as it is
  std::map<std::string, WarningCounts> by_study;  // the same
  int64_t recovered = 0, recovered_stopped = 0;   // of the others
  double saved = 0;                               // share of the steps of all hits together
  WarningRule chosen;                             // with the bound chosen on these runs
};

GuardJudgement judge_guard(const CollapseStopConfig& rule, std::vector<GuardRun> runs);
GuardJudgement guard_rule(const CollapseStopConfig& rule, const std::vector<std::string>& paths);

// "{measure: entropy_norm, at_most: 0.83, for: 10}" or "auto", with the checks of a configuration.
CollapseStopConfig read_guard_rule(const std::string& text);

std::string guard_rule_text(const GuardJudgement& judgement);
nlohmann::ordered_json guard_rule_json(const GuardJudgement& judgement);

}  // namespace assay
