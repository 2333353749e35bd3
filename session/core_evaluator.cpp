#include "session/core_evaluator.h"

#include <algorithm>

#include "base/build_info.h"
#include "base/check.h"
#include "data/sha256.h"
#include "data/tokenizer_files.h"
#include "engine/config/schedule.h"
#include "eval/core_tasks.h"
#include "eval/ranks.h"
#include "session/eval_file.h"

namespace assay {

namespace {

using nlohmann::ordered_json;

Tokenizer core_tokenizer(const std::string& file) {
  if (file.empty()) {
    throw UserError("eval.core is set, but there is no tokenizer",
                    "set data.tokenizer to the shards' tokenizer, or --set eval.core=null");
  }
  Tokenizer tokenizer = read_tokenizer(file);
  tokenizer.eot();
  return tokenizer;
}

int64_t not_scored(const CoreReport& report) {
  int64_t rows = 0;
  for (const CoreTaskResult& task : report.tasks) rows += int64_t(task.skipped.size());
  return rows;
}

// "core 0.0231 +- 0.0063; hellaswag +0.031, ..."
std::string log_text(const CoreReport& report) {
  const CoreScore score = core_score(report.tasks);
  std::string text = core_metric(report);
  text += score.core ? strprintf(" %.4f +- %.4f", *score.core, score.standard_error)
                     : " none, a task has no scored row";
  if (const int64_t rows = not_scored(report); rows > 0) {
    text += strprintf(", %ld rows not scored", long(rows));
  }
  text += "\n";
  for (const CoreTaskResult& task : report.tasks) {
    if (!task.centered()) continue;
    text += strprintf("%s%s %+.3f", text.back() == '\n' ? "" : ", ", task.label.c_str(),
                      *task.centered());
  }
  return text;
}

}  // namespace

TrainingCore::TrainingCore(const Config& config, const RunData& data, std::string run,
                           std::string device, const EvaluationRanks& ranks)
    : run_config_(config),
      config_(*config.eval.core),
      run_(std::move(run)),
      device_(std::move(device)),
      max_tokens_(config_.max_tokens > 0 ? config_.max_tokens : config.run.sequence),
      batch_rows_(config.run.micro_batch * config.run.sequence),
      ranks_(ranks),
      tokenizer_(core_tokenizer(data.tokenizer)) {
  const CoreBundle bundle =
      with_tasks(read_core_bundle(config_.bundle), config_.tasks, "eval.core.tasks");
  missing_ = bundle.missing;
  for (const CoreTask& task : bundle.tasks) {
    examples_.emplace_back(task, read_core_rows(task), config_.max_rows);
    tokens_.push_back(estimated_tokens(examples_.back(), tokenizer_, max_tokens_));
    rows_sha256_.push_back(sha256_file(task.path));
  }
}

std::vector<CoreTask> TrainingCore::tasks() const {
  std::vector<CoreTask> all;
  for (const CoreExamples& examples : examples_) all.push_back(examples.task());
  return all;
}

std::vector<std::pair<std::string, std::string>> TrainingCore::bundle_hashes() const {
  return core_bundle_hashes({.folder = config_.bundle, .tasks = tasks(), .missing = missing_});
}

bool TrainingCore::due(const EvalMoment& at) const {
  return at.last || (at.landing && config_.at_landings) ||
         (config_.every > 0 && at.steps_done % config_.every == 0);
}

std::optional<CoreReport> TrainingCore::score(Exec on, Model& model, int64_t step,
                                              const EvalWatch& watch) const {
  CoreReport report;
  report.checkpoint = run_;
  report.step = step;
  report.bundle = config_.bundle;
  report.max_tokens = max_tokens_;
  report.max_rows = limit_of_rows(examples_, config_.max_rows);
  report.rows_sha256 = rows_sha256_;
  report.missing = missing_;
  ModelScorer scorer(on, model, {.batch_rows = batch_rows_});
  std::optional<CoreTaskScores> answers = score_core_tasks(ranks_.sharing, scorer,
                                                           {.examples = examples_,
                                                            .tokens = tokens_,
                                                            .tokenizer = tokenizer_,
                                                            .max_tokens = max_tokens_},
                                                           ranks_.in_step(watch));
  if (!answers) return std::nullopt;
  report.tasks = std::move(answers->tasks);
  report.seconds = std::move(answers->seconds);
  report.work = answers->work;
  report.rows_computed = answers->rows_computed;
  return report;
}

std::optional<Evaluation> TrainingCore::evaluate(Exec on, Model& model, const EvalMoment& at,
                                                 const EvalWatch& watch) {
  const std::optional<CoreReport> report = score(on, model, at.steps_done, watch);
  if (!report) return std::nullopt;
  ordered_json file;
  file["checkpoint"] = run_;
  file["step"] = at.steps_done;
  file["commit"] = build_info().commit;
  file["device"] = device_;
  file["recipe"] = run_config_.precision.recipe;
  file["phase"] = precision_phase(run_config_, at.steps_done);
  file["core"] = core_json(*report);
  run_part(ranks_.all, [&] {
    if (ranks_.first()) record_evaluation(run_, at.steps_done, file);
    return PartEnd::kDone;
  });
  return Evaluation{.results = core_results(*report), .text = log_text(*report)};
}

std::vector<EvalResult> core_results(const CoreReport& report) {
  std::vector<EvalResult> results;
  int64_t scored = 0;
  for (const CoreTaskResult& task : report.tasks) scored += task.scored();
  const CoreScore score = core_score(report.tasks);
  if (score.core) {
    results.push_back({"core", core_metric(report), *score.core, scored});
    results.push_back({"core", "standard_error", score.standard_error, scored});
  }
  results.push_back({"core", "not_scored_rows", double(not_scored(report)), scored});
  for (const CoreTaskResult& task : report.tasks) {
    const std::string name = "core/" + task.label;
    if (task.scored() > 0) {
      results.push_back({name, "accuracy", *task.accuracy(), task.scored()});
      results.push_back({name, "centered", *task.centered(), task.scored()});
    }
    if (!task.skipped.empty()) {
      results.push_back({name, "not_scored_rows", double(task.skipped.size()), task.scored()});
    }
  }
  return results;
}

}  // namespace assay
