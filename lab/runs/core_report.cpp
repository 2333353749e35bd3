#include "lab/runs/core_report.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "base/joined.h"
#include "data/json_text.h"
#include "lab/runs/text_table.h"
#include "models/audit/model_table.h"

namespace assay {

namespace {

using nlohmann::ordered_json;

constexpr size_t kLinesShown = 3;  // line numbers listed per reason

std::string share(const std::optional<double>& value, const char* format) {
  return value ? strprintf(format, *value) : "";
}

ordered_json or_null(const std::optional<double>& value) {
  return value ? ordered_json(*value) : ordered_json();
}

size_t tasks_of_bundle(const CoreReport& report) {
  return report.tasks.size() + report.missing.size();
}

// "" with the tasks of CORE.
std::string not_core_text(const CoreReport& report) {
  if (report.complete()) return "";
  if (report.missing.empty()) {
    return strprintf("This is not CORE: the tasks of %s are not its %zu\n", report.bundle.c_str(),
                     core_labels().size());
  }
  return strprintf("This is not CORE: %zu tasks were not chosen, or have no file in %s (%s)\n",
                   report.missing.size(), report.bundle.c_str(),
                   joined(report.missing, ", ").c_str());
}

// "12 of 2,376 rows of arc_easy were not scored: the answer is longer than the model's context
// (line 4, 17, 80, ...)", one line per reason.
std::string skipped_text(const CoreTaskResult& task) {
  std::map<std::string, std::vector<int64_t>> lines;
  for (const auto& [line, why] : task.skipped) lines[why].push_back(line + 1);
  std::string text;
  for (const auto& [why, at] : lines) {
    std::string shown;
    for (size_t i = 0; i < at.size() && i < kLinesShown; ++i) {
      shown += (i == 0 ? "" : ", ") + std::to_string(at[i]);
    }
    text += strprintf("%zu of %s rows of %s were not scored: %s (line %s%s)\n", at.size(),
                      grouped(task.rows).c_str(), task.label.c_str(), why.c_str(), shown.c_str(),
                      at.size() > kLinesShown ? ", ..." : "");
  }
  return text;
}

std::string score_line(const std::string& name, const CoreScore& score) {
  if (!score.core) {
    return name + (name.ends_with(':') ? "" : ":") + " none, a task has no scored row\n";
  }
  return strprintf("%s %.4f +- %.4f (standard error over rows)\n", name.c_str(), *score.core,
                   score.standard_error);
}

constexpr CoreVersion kVersions[] = {CoreVersion::kV1, CoreVersion::kV2};

// Of which versions of CORE the accuracies of guessing are: "v1", "v2", "v1 and v2" of tasks for
// which both have the same, or "other".
std::string versions_of(const CoreReport& report) {
  std::string names;
  for (const CoreVersion version : kVersions) {
    if (!is_of_version(report.tasks, version)) continue;
    names += (names.empty() ? "" : " and ") + std::string(core_version_name(version));
  }
  return names.empty() ? "other" : names;
}

// "Guessing is as in CORE v1; as in v2 the score is 0.0881 +- 0.0065"; "" where both versions give
// the same score, or none has these tasks.
std::string versions_text(const CoreReport& report) {
  std::string own, others;
  for (const CoreVersion version : kVersions) {
    const char* const name = core_version_name(version);
    const auto as_there = as_in_version(report.tasks, version);
    if (!as_there) return "";
    if (is_of_version(report.tasks, version)) {
      own += std::string("Guessing is as in CORE ") + name;
    } else if (const CoreScore score = core_score(*as_there); score.core) {
      others += strprintf("; as in %s the score is %.4f +- %.4f", name, *score.core,
                          score.standard_error);
    }
  }
  if (others.empty()) return "";
  return (own.empty() ? "Guessing is as in no version of CORE" : own) + others + "\n";
}

// "3,412 of 9,504 prompts lost their beginning: arc_easy 3,102, copa 310"; "" if none did, or an
// earlier version did not count them.
std::string cut_text(const CoreReport& report) {
  const std::optional<int64_t> all = report.cut_prompts();
  if (all.value_or(0) == 0) return "";
  std::string tasks;
  for (const CoreTaskResult& task : report.tasks) {
    if (*task.cut_prompts == 0) continue;
    tasks += (tasks.empty() ? "" : ", ") + task.label + " " + grouped(*task.cut_prompts);
  }
  return strprintf("%s of %s prompts lost their beginning: %s\n", grouped(*all).c_str(),
                   grouped(report.work.prompts).c_str(), tasks.c_str());
}

ordered_json score_json(const CoreScore& score, size_t tasks) {
  ordered_json j;
  j["tasks"] = tasks;
  j["mean_centered"] = or_null(score.core);
  j["standard_error"] = score.core ? ordered_json(score.standard_error) : ordered_json();
  return j;
}

}  // namespace

bool CoreReport::complete() const {
  std::vector<std::string> labels;
  for (const CoreTaskResult& task : tasks) labels.push_back(task.label);
  return is_core(labels);
}

bool CoreReport::whole() const {
  return complete() && max_rows == 0;
}

double CoreReport::total_seconds() const {
  return std::accumulate(seconds.begin(), seconds.end(), 0.0);
}

std::optional<int64_t> CoreReport::cut_prompts() const {
  CoreTaskResult all;
  for (const CoreTaskResult& task : tasks) all.add_cut_prompts(task.cut_prompts);
  return all.cut_prompts;
}

std::string core_metric(const CoreReport& report) {
  std::string name = "core";
  if (!report.complete()) {
    name = strprintf("mean_of_%zu_of_%zu_tasks", report.tasks.size(), tasks_of_bundle(report));
  }
  if (report.max_rows > 0) name += strprintf("_of_at_most_%ld_rows_each", long(report.max_rows));
  return name;
}

std::string core_text(const CoreReport& report) {
  TextTable table(
      {"task", "kind", "shots", "rows", "scored", "accuracy", "guessing", "centred", "seconds"});
  std::string skipped;
  for (size_t i = 0; i < report.tasks.size(); ++i) {
    const CoreTaskResult& task = report.tasks[i];
    table.add({task.label, core_kind_name(task.kind), std::to_string(task.shots),
               grouped(task.rows), grouped(task.scored()), share(task.accuracy(), "%.4f"),
               strprintf("%.3f", task.baseline_percent / 100), share(task.centered(), "%+.4f"),
               strprintf("%.1f", report.seconds[i])});
    skipped += skipped_text(task);
  }
  std::string text = table.text() + "\n" + skipped;
  const CoreScore score = core_score(report.tasks);
  const std::string mean =
      strprintf("mean of %zu of %zu tasks:", report.tasks.size(), tasks_of_bundle(report));
  const std::string name = report.whole() ? "CORE" : core_metric(report);
  text += score_line(report.complete() ? name : mean, score) + not_core_text(report);
  text += versions_text(report);
  const std::string few =
      report.max_rows > 0 ? strprintf(", at most %s rows each", grouped(report.max_rows).c_str())
                          : "";
  for (const CoreSubset& subset : core_subsets()) {
    if (const auto members = subset_of(report.tasks, subset)) {
      text += score_line(subset.name + few, core_score(*members));
    }
  }
  if (report.max_rows > 0) {
    text += strprintf(
        "At most %s rows per task, which is not CORE: examples are drawn only from these, so "
        "scores differ from those of whole tasks by more than the standard error\n",
        grouped(report.max_rows).c_str());
  }
  text += cut_text(report);
  const double seconds = report.passed_s.value_or(report.total_seconds());
  const std::string of_ranks =
      report.passed_s ? strprintf(" (%.1f s of all ranks together)", report.total_seconds()) : "";
  text += strprintf(
      "%s prompts with %s tokens (at most %s each; longer prompts lose their beginning) in "
      "%.1f s%s: %.0f prompt tokens/s; %.0f%% of the token rows were computed, the rest "
      "shared\n",
      grouped(report.work.prompts).c_str(), grouped(report.work.prompt_tokens).c_str(),
      grouped(report.max_tokens).c_str(), seconds, of_ranks.c_str(),
      double(report.work.prompt_tokens) / std::max(seconds, 1e-9),
      100 * double(report.rows_computed) / double(std::max<int64_t>(report.work.prompt_tokens, 1)));
  return text;
}

std::string core_rows_text(const CoreReport& report) {
  std::string text;
  for (const CoreTaskResult& task : report.tasks) {
    for (size_t i = 0; i < task.scores.size(); ++i) {
      const CoreRowScores& row = task.scores[i];
      ordered_json j;
      j["task"] = task.label;
      j["kind"] = core_kind_name(task.kind);
      j["line"] = row.line + 1;
      if (!row.not_scored.empty()) {
        j["not_scored"] = row.not_scored;
      } else {
        j["nats_per_token"] = ordered_json::array();
        j["tokens"] = ordered_json::array();
        for (const PromptScore& s : row.options) {
          j["nats_per_token"].push_back(s.nats);
          j["tokens"].push_back(s.tokens);
        }
        if (task.kind != CoreKind::kLanguageModeling) {
          j["chosen"] = chosen_option(row.options);
          j["gold"] = row.gold;
        }
        j["right"] = task.answers[i] == CoreTaskResult::kRight;
      }
      text += json_text(j) + "\n";
    }
  }
  return text;
}

ordered_json core_task_json(const CoreReport& report, size_t i) {
  const CoreTaskResult& task = report.tasks[i];
  ordered_json t;
  t["label"] = task.label;
  t["kind"] = core_kind_name(task.kind);
  t["shots"] = task.shots;
  t["rows"] = task.rows;
  t["baseline_percent"] = task.baseline_percent;
  t["seconds"] = report.seconds[i];
  if (task.cut_prompts) t["cut_prompts"] = *task.cut_prompts;
  t["not_scored"] = ordered_json::array();
  for (const auto& [line, why] : task.skipped) {
    ordered_json one;
    one["line"] = line + 1;
    one["why"] = why;
    t["not_scored"].push_back(one);
  }
  return t;
}

ordered_json core_json(const CoreReport& report) {
  ordered_json j;
  j["checkpoint"] = report.checkpoint;
  j["step"] = report.step;
  j["bundle"] = report.bundle;
  j["max_tokens"] = report.max_tokens;
  j["max_rows_per_task"] = report.max_rows;
  const CoreScore score = core_score(report.tasks);
  j["core"] = report.whole() ? or_null(score.core) : ordered_json();
  j["present"] = score_json(score, report.tasks.size());
  j["guessing"] = versions_of(report);
  j["versions"] = ordered_json::object();
  for (const CoreVersion version : kVersions) {
    if (const auto tasks = as_in_version(report.tasks, version)) {
      j["versions"][core_version_name(version)] = score_json(core_score(*tasks), tasks->size());
    }
  }
  j["subsets"] = ordered_json::object();
  for (const CoreSubset& subset : core_subsets()) {
    if (const auto members = subset_of(report.tasks, subset)) {
      j["subsets"][subset.name] = score_json(core_score(*members), members->size());
    }
  }
  j["missing"] = report.missing;
  j["tasks"] = ordered_json::array();
  for (size_t i = 0; i < report.tasks.size(); ++i) {
    const CoreTaskResult& task = report.tasks[i];
    ordered_json t = core_task_json(report, i);
    t["scored"] = task.scored();
    t["accuracy"] = or_null(task.accuracy());
    t["centered"] = or_null(task.centered());
    if (!report.rows_sha256.empty()) t["rows_sha256"] = report.rows_sha256[i];
    t["answers"] = task.answers;
    j["tasks"].push_back(t);
  }
  j["prompts"] = report.work.prompts;
  j["prompt_tokens"] = report.work.prompt_tokens;
  if (const auto cut = report.cut_prompts()) j["cut_prompts"] = *cut;
  j["rows_computed"] = report.rows_computed;
  j["seconds"] = report.total_seconds();
  return j;
}

bool is_whole_core(const ordered_json& core) {
  std::vector<std::string> labels;
  for (const ordered_json& task : core.value("tasks", ordered_json::array())) {
    labels.push_back(task.value("label", ""));
  }
  return core.value("max_rows_per_task", 0) == 0 && is_core(labels);
}

}  // namespace assay
