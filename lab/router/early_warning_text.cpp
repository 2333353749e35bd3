#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "lab/router/early_warning.h"
#include "lab/runs/text_table.h"

namespace assay {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kRows = 12;  // of the table

std::string rule_text(const Threshold& rule) {
  return strprintf("%s %.4g", rule.at_least ? ">=" : "<=", rule.bound);
}

std::string rate_text(int64_t count, int64_t of) {
  const Interval i = wilson(count, of);
  return strprintf("%ld of %ld (%.0f-%.0f%%)", long(count), long(of), 100 * i.low, 100 * i.high);
}

std::string sentence(const EarlyWarning& w) {
  const WarningRule& best = w.rules.front();
  const WarningCounts& c = best.by_configuration;
  std::string text;
  // A rule that knows nothing has 0.5.
  if (c.balanced() < 0.75) {
    text = "no measure tells collapsed runs from others well: the best, " + best.measure.text() +
           ", has " + strprintf("a balanced rate of %.2f, where 0.5 is chance\n", c.balanced());
  } else {
    text = strprintf(
        "best: %s %s, judged on configurations it has not seen, warns of %ld of %ld "
        "collapsed runs and of %ld of %ld others",
        best.measure.text().c_str(), rule_text(*best.rule).c_str(), long(c.hits), long(c.collapsed),
        long(c.alarms), long(c.others));
    text +=
        strprintf("; of %ld collapsed runs that it warns of, %ld have no saturated layer by then\n",
                  long(w.warned), long(w.warned_before));
  }
  return text + strprintf(
                    "with the measure chosen anew without each configuration: %ld of %ld "
                    "collapsed runs, %ld of %ld others\n",
                    long(w.chosen.hits), long(w.chosen.collapsed), long(w.chosen.alarms),
                    long(w.chosen.others));
}

Json counts_json(const WarningCounts& c) {
  return {{"hits", c.hits},
          {"collapsed", c.collapsed},
          {"alarms", c.alarms},
          {"others", c.others},
          {"balanced", c.balanced()}};
}

}  // namespace

std::string early_warning_text(const EarlyWarning& w) {
  int64_t collapsed = 0;
  std::vector<std::string> configurations;
  for (const WarningRun& run : w.runs) {
    collapsed += run.end == RouterState::kCollapsed ? 1 : 0;
    configurations.push_back(run.configuration);
  }
  std::sort(configurations.begin(), configurations.end());
  configurations.erase(std::unique(configurations.begin(), configurations.end()),
                       configurations.end());
  std::string text =
      strprintf("%zu runs of %zu configurations: %ld collapsed, %ld not; %zu left out\n",
                w.runs.size(), configurations.size(), long(collapsed),
                long(int64_t(w.runs.size()) - collapsed), w.left_out.size());
  if (w.rules.empty()) {
    return text + "nothing to judge: it takes runs that collapsed and runs that did not\n";
  }
  TextTable table({"measure at share of the steps", "warns if", "hits", "false alarms",
                   "by run: hits", "false alarms", "balanced"});
  for (size_t i = 0; i < std::min(kRows, w.rules.size()); ++i) {
    const WarningRule& r = w.rules[i];
    const WarningCounts& c = r.by_configuration;
    table.add({r.measure.text(), rule_text(*r.rule), rate_text(c.hits, c.collapsed),
               rate_text(c.alarms, c.others),
               strprintf("%ld of %ld", long(r.by_run.hits), long(r.by_run.collapsed)),
               strprintf("%ld of %ld", long(r.by_run.alarms), long(r.by_run.others)),
               strprintf("%.2f", c.balanced())});
  }
  text += table.text();
  if (w.rules.size() > kRows) {
    text += strprintf("and %zu more with --json; the last has a balanced rate of %.2f\n",
                      w.rules.size() - kRows, w.rules.back().by_configuration.balanced());
  }
  if (w.rarely_measured > 0) {
    text += strprintf("%ld measures are not judged: fewer than nine tenths of the runs have them\n",
                      long(w.rarely_measured));
  }
  return text +
         "hits and false alarms: judged on all seeds of a configuration with the bound of the "
         "others, and on single runs; 95% intervals\n" +
         sentence(w);
}

Json early_warning_json(const EarlyWarning& w) {
  Json json;
  json["runs"] = Json::array();
  for (const WarningRun& run : w.runs) {
    json["runs"].push_back({{"run", run.name},
                            {"configuration", run.configuration},
                            {"end", name_of(run.end)},
                            {"steps", run.steps},
                            {"saturated_at", run.saturated_at ? Json(*run.saturated_at) : Json()}});
  }
  json["left_out"] = w.left_out;
  json["rules"] = Json::array();
  for (const WarningRule& r : w.rules) {
    json["rules"].push_back({{"measure", r.measure.name},
                             {"share", r.measure.share},
                             {"direction", r.rule->at_least ? "at_least" : "at_most"},
                             {"bound", r.rule->bound},
                             {"by_configuration", counts_json(r.by_configuration)},
                             {"by_run", counts_json(r.by_run)}});
  }
  json["measure_chosen_without_each_configuration"] = counts_json(w.chosen);
  json["measures_not_judged"] = w.rarely_measured;
  json["warned_collapsed_runs"] = w.warned;
  json["warned_before_saturation"] = w.warned_before;
  return json;
}

}  // namespace assay
