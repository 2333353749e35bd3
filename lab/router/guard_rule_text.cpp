#include <nlohmann/json.hpp>

#include "base/check.h"
#include "engine/config/collapse_auto.h"
#include "lab/router/guard_rule.h"
#include "lab/runs/text_table.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

std::string both_rates(const WarningCounts& c) {
  return "hits " + hits_text(c) + ", false alarms " + alarms_text(c);
}

std::string studies_table(const GuardJudgement& j) {
  TextTable table({"study", "hits", "false alarms"});
  const auto add = [&](const std::string& name, const WarningCounts& c) {
    table.add({name, c.collapsed > 0 ? hits_text(c) : "", c.others > 0 ? alarms_text(c) : ""});
  };
  for (const auto& [study, counts] : j.by_study) add(study_name(study), counts);
  if (j.by_study.size() > 1) add("all", j.counts);
  return table.text();
}

std::string left_out_text(const char* what, const WarningCounts& c, size_t runs) {
  std::string text = std::string("  chosen without each ") + what + ": " + both_rates(c);
  if (const int64_t unjudged = int64_t(runs) - c.runs(); unjudged > 0) {
    text += strprintf("; %ld runs are judged by nothing, as without them all others end alike",
                      long(unjudged));
  }
  return text + "\n";
}

std::string chosen_text(const GuardJudgement& j) {
  const WarningRule& chosen = j.chosen;
  if (!chosen.rule) return "no bound to choose: all of these runs end alike\n";
  std::string text = strprintf("the bound that separates these runs best: %s %.4g\n",
                               chosen.rule->at_least ? "at_least" : "at_most", chosen.rule->bound);
  text += left_out_text("configuration", chosen.by_configuration, j.runs.size());
  if (j.by_study.size() > 1) return text + left_out_text("study", chosen.by_study, j.runs.size());
  return text + "  one study, " + study_name(j.by_study.begin()->first) +
         ": nothing here tells how a rule does in another\n";
}

std::string runs_table(const GuardJudgement& j) {
  TextTable table({"run", "ended", "stops at", "of", "saved"});
  for (const GuardRun& guarded : j.runs) {
    const WarningRun& run = guarded.run;
    const bool stopped = guarded.stops_at.has_value();
    table.add({run.name, state_word(run.end), stopped ? std::to_string(*guarded.stops_at) : "",
               std::to_string(run.steps),
               stopped ? strprintf("%.0f%%", 100 * guarded.saved()) : ""});
  }
  return table.text();
}

}  // namespace

std::string guard_rule_text(const GuardJudgement& j) {
  std::vector<WarningRun> runs;
  for (const GuardRun& guarded : j.runs) runs.push_back(guarded.run);
  std::string text = "rule: " + collapse_rule_text(j.rule) + "\n";
  text += runs_text(runs, j.left_out);
  if (runs.empty()) return text + "nothing to judge: it takes runs of routers that ended\n";
  text += runs_table(j) + studies_table(j);
  text += strprintf(
      "the guard stops %ld of %ld collapsed runs, where it would have saved %.0f%% of their steps, "
      "and %ld of %ld others; %ld of %ld recovered runs are among these\n",
      long(j.counts.hits), long(j.counts.collapsed), 100 * j.saved, long(j.counts.alarms),
      long(j.counts.others), long(j.recovered_stopped), long(j.recovered));
  return text + chosen_text(j);
}

Json guard_rule_json(const GuardJudgement& j) {
  Json json;
  json["rule"] = {{"measure", j.rule.measure},
                  {"direction", j.rule.at_least ? "at_least" : "at_most"},
                  {"bound", j.rule.at_least ? *j.rule.at_least : j.rule.at_most.value_or(0)},
                  {"layers", name_of(j.rule.layers)},
                  {"for", j.rule.logged_steps},
                  {"from", j.rule.from.value_or(0)}};
  const Json counts = counts_json(j.counts);
  json["counts"] = counts;
  json["hit_rate95"] = counts["hit_rate95"];
  json["false_alarm_rate95"] = counts["false_alarm_rate95"];
  json["recovered"] = j.recovered;
  json["recovered_stopped"] = j.recovered_stopped;
  json["saved_of_hits"] = j.saved;
  json["by_study"] = Json::object();
  for (const auto& [study, counts] : j.by_study) json["by_study"][study] = counts_json(counts);
  json["best_bound"] = j.chosen.rule ? Json(j.chosen.rule->bound) : Json();
  json["bound_chosen_without_each_configuration"] = counts_json(j.chosen.by_configuration);
  json["bound_chosen_without_each_study"] = counts_json(j.chosen.by_study);
  json["runs"] = Json::array();
  for (const GuardRun& guarded : j.runs) {
    Json run = run_json(guarded.run);
    run["stops_at"] = guarded.stops_at ? Json(*guarded.stops_at) : Json();
    run["saved"] = guarded.saved();
    json["runs"].push_back(std::move(run));
  }
  json["left_out"] = lines_of(j.left_out);
  return json;
}

}  // namespace assay
