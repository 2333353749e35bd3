#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/check.h"
#include "lab/router/early_warning.h"
#include "lab/runs/text_table.h"

namespace assay {

namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kRows = 12;    // of the table
constexpr size_t kReasons = 5;  // for which runs are left out

std::string rule_text(const Threshold& rule) {
  return strprintf("%s %.4g", rule.at_least ? ">=" : "<=", rule.bound);
}

std::string share_text(int64_t count, int64_t of) {
  return strprintf("%ld of %ld", long(count), long(of));
}

std::string percent_text(const Interval& i) {
  return strprintf(" (%.0f-%.0f%%)", 100 * i.low, 100 * i.high);
}

std::string chosen_text(const char* without, const WarningCounts& c) {
  return strprintf("without each %s: %s collapsed runs, %s others", without,
                   share_text(c.hits, c.collapsed).c_str(), share_text(c.alarms, c.others).c_str());
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
  text += "with the measure chosen anew " + chosen_text("configuration", w.chosen);
  if (w.chosen_by_study.runs() > 0) text += "; " + chosen_text("study", w.chosen_by_study);
  return text + "\n";
}

// "left out: 40 dense, 2 a copy of another (--json names them)\n", the most frequent reasons first;
// "" for none.
std::string reasons_text(const std::vector<RunLeftOut>& left_out) {
  std::map<std::string, int64_t> count;
  for (const RunLeftOut& run : left_out) {
    ++count[run.copy_of.empty() ? run.why : "a copy of another"];
  }
  std::vector<std::pair<std::string, int64_t>> reasons(count.begin(), count.end());
  std::stable_sort(reasons.begin(), reasons.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text;
  for (size_t i = 0; i < std::min(reasons.size(), kReasons); ++i) {
    text +=
        strprintf("%s%ld %s", i > 0 ? ", " : "", long(reasons[i].second), reasons[i].first.c_str());
  }
  if (text.empty()) return "";
  const bool more = reasons.size() > kReasons;
  return "left out: " + text + (more ? ", and others" : "") + " (--json names them)\n";
}

// What the columns by study rest on.
std::string studies_sentence(const EarlyWarning& w) {
  const std::set<std::string> studies = studies_of(w.runs);
  if (studies.size() == 1) {
    return "one study, " + study_name(*studies.begin()) +
           ": nothing here tells how a rule does in another\n";
  }
  const int64_t unjudged =
      w.rules.front().by_configuration.runs() - w.rules.front().by_study.runs();
  if (unjudged <= 0) return "";
  return strprintf("%ld runs are not judged by study: without theirs, all others end alike\n",
                   long(unjudged));
}

}  // namespace

std::string hits_text(const WarningCounts& c) {
  return share_text(c.hits, c.collapsed) + percent_text(hit_rate95(c));
}

std::string alarms_text(const WarningCounts& c) {
  return share_text(c.alarms, c.others) + percent_text(alarm_rate95(c));
}

Json counts_json(const WarningCounts& c) {
  return {{"hits", c.hits},
          {"collapsed", c.collapsed},
          {"collapsed_configurations", c.collapsed_in.size()},
          {"hit_rate95", {hit_rate95(c).low, hit_rate95(c).high}},
          {"alarms", c.alarms},
          {"others", c.others},
          {"other_configurations", c.others_in.size()},
          {"false_alarm_rate95", {alarm_rate95(c).low, alarm_rate95(c).high}},
          {"balanced", c.balanced()}};
}

Json run_json(const WarningRun& run) {
  return {{"run", run.name},
          {"study", run.study},
          {"configuration", run.configuration},
          {"end", name_of(run.end)},
          {"steps", run.steps},
          {"saturated_at", run.saturated_at ? Json(*run.saturated_at) : Json()}};
}

std::set<std::string> studies_of(const std::vector<WarningRun>& runs) {
  std::set<std::string> studies;
  for (const WarningRun& run : runs) studies.insert(run.study);
  return studies;
}

std::string study_name(const std::string& study) {
  return study.substr(study.rfind('/') + 1);
}

std::string RunLeftOut::text() const {
  return run + ": " + (copy_of.empty() ? why : "a copy of " + copy_of);
}

std::vector<std::string> lines_of(const std::vector<RunLeftOut>& left_out) {
  std::vector<std::string> lines;
  for (const RunLeftOut& run : left_out) lines.push_back(run.text());
  return lines;
}

std::string runs_text(const std::vector<WarningRun>& runs,
                      const std::vector<RunLeftOut>& left_out) {
  int64_t collapsed = 0;
  std::set<std::string> configurations;
  for (const WarningRun& run : runs) {
    collapsed += run.collapsed() ? 1 : 0;
    configurations.insert(run.configuration);
  }
  const size_t studies = studies_of(runs).size();
  return strprintf(
             "%zu runs of %zu configurations in %zu %s: %ld collapsed, %ld not; %zu left out\n",
             runs.size(), configurations.size(), studies, studies == 1 ? "study" : "studies",
             long(collapsed), long(int64_t(runs.size()) - collapsed), left_out.size()) +
         reasons_text(left_out);
}

std::string early_warning_text(const EarlyWarning& w) {
  std::string text = runs_text(w.runs, w.left_out);
  if (w.rules.empty()) {
    const auto collapsed = std::count_if(w.runs.begin(), w.runs.end(),
                                         [](const WarningRun& run) { return run.collapsed(); });
    if (collapsed == 0 || size_t(collapsed) == w.runs.size()) {
      return text + "nothing to judge: it takes runs that collapsed and runs that did not\n";
    }
    return text +
           "nothing to judge: too few of the runs logged a step near the shares that are judged "
           "(run.log_every), or no measure has a bound between the two kinds\n";
  }
  TextTable table({"measure at share of the steps", "warns if", "hits", "false alarms",
                   "by study: hits", "false alarms", "by run: hits", "false alarms", "balanced"});
  for (size_t i = 0; i < std::min(kRows, w.rules.size()); ++i) {
    const WarningRule& r = w.rules[i];
    const WarningCounts &c = r.by_configuration, &study = r.by_study;
    const bool judged = study.runs() > 0;
    table.add({r.measure.text(), rule_text(*r.rule), hits_text(c), alarms_text(c),
               judged ? share_text(study.hits, study.collapsed) : "",
               judged ? share_text(study.alarms, study.others) : "",
               share_text(r.by_run.hits, r.by_run.collapsed),
               share_text(r.by_run.alarms, r.by_run.others), strprintf("%.2f", c.balanced())});
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
         "others, on whole studies, and on single runs; 95% intervals of as many observations as "
         "there are configurations\n" +
         studies_sentence(w) + sentence(w);
}

Json early_warning_json(const EarlyWarning& w) {
  Json json;
  json["runs"] = Json::array();
  for (const WarningRun& run : w.runs) {
    json["runs"].push_back(run_json(run));
  }
  json["studies"] = studies_of(w.runs).size();
  json["left_out"] = lines_of(w.left_out);
  json["rules"] = Json::array();
  for (const WarningRule& r : w.rules) {
    json["rules"].push_back({{"measure", r.measure.name},
                             {"share", r.measure.share},
                             {"direction", r.rule->at_least ? "at_least" : "at_most"},
                             {"bound", r.rule->bound},
                             {"by_configuration", counts_json(r.by_configuration)},
                             {"by_study", counts_json(r.by_study)},
                             {"by_run", counts_json(r.by_run)}});
  }
  json["measure_chosen_without_each_configuration"] = counts_json(w.chosen);
  json["measure_chosen_without_each_study"] = counts_json(w.chosen_by_study);
  json["measures_not_judged"] = w.rarely_measured;
  json["warned_collapsed_runs"] = w.warned;
  json["warned_before_saturation"] = w.warned_before;
  return json;
}

}  // namespace assay
