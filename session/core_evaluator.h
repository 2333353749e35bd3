// CORE while a run trains (section eval.core): the model that trains answers in the memory of its
// own micro-batch.
//
// Rows of telemetry, task "core": CORE, or what it is when tasks or rows are left out under a name
// that says so (mean_of_9_of_22_tasks_of_at_most_200_rows_each), standard_error, not_scored_rows;
// task "core/LABEL": accuracy, centered, and not_scored_rows where there are such. The whole report
// is in RUN/evals/step-N.json, as `assay eval` writes it.
#pragma once

#include <string>
#include <vector>

#include "data/bpe.h"
#include "engine/evaluator.h"
#include "eval/core_prompts.h"
#include "lab/runs/core_report.h"
#include "session/run_data.h"

namespace assay {

class TrainingCore final : public Evaluator {
 public:
  // config.eval.core is there. Reads every row now: later changes of the bundle are another run's.
  // UserError as read_core_bundle, for an unknown task, and without a tokenizer that has an
  // <|endoftext|>.
  TrainingCore(const Config& config, const RunData& data, std::string run);

  std::string task() const override { return "core"; }
  bool due(const EvalMoment& at) const override;
  std::optional<Evaluation> evaluate(Exec on, Model& model, const EvalMoment& at,
                                     const EvalWatch& watch) override;

 private:
  std::optional<CoreReport> score(Exec on, Model& model, int64_t step,
                                  const EvalWatch& watch) const;

  const CoreEvalConfig config_;
  const std::string run_;
  const int64_t max_tokens_, batch_rows_;
  Tokenizer tokenizer_;
  std::vector<CoreExamples> examples_;
  std::vector<std::string> missing_;  // labels without a file, or not asked for
  int64_t tokens_ = 0;                // of all prompts, about
};

// "core", "core_of_at_most_200_rows_each", "mean_of_9_of_22_tasks", ...
std::string core_metric(const CoreReport& report);
std::vector<EvalResult> core_results(const CoreReport& report);

}  // namespace assay
