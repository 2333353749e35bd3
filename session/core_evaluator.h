// Scores CORE while a run trains (section eval.core), with the training model in the memory of its
// micro-batch.
//
// Telemetry rows of task "core": core, standard_error, not_scored_rows. When tasks or rows are left
// out, core is named after what it is (mean_of_9_of_22_tasks_of_at_most_200_rows_each). Task
// "core/LABEL": accuracy, centered, and not_scored_rows if there are any. The whole report is in
// RUN/evals/step-N.json, as `assay eval` writes it. Every rank gets the report, rank 0 writes it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "data/bpe.h"
#include "engine/evaluator.h"
#include "eval/core_prompts.h"
#include "eval/ranks.h"
#include "lab/runs/core_report.h"
#include "session/run_data.h"

namespace assay {

class TrainingCore final : public Evaluator {
 public:
  // config.eval.core must be set. Reads all rows now, so that later changes of the bundle do not
  // affect this run. UserError as read_core_bundle, for an unknown task, and when there is no
  // tokenizer with an <|endoftext|>. device: SessionDevice::name(), for the report. ranks: as in
  // eval/ranks.h; they share the rows.
  TrainingCore(const Config& config, const RunData& data, std::string run, std::string device,
               const EvaluationRanks& ranks = {});

  std::vector<CoreTask> tasks() const;  // that are scored
  // core_bundle_hashes() of these.
  std::vector<std::pair<std::string, std::string>> bundle_hashes() const;

  std::string task() const override { return "core"; }
  bool due(const EvalMoment& at) const override;
  int64_t every() const override { return config_.every; }
  std::optional<Evaluation> evaluate(Exec on, Model& model, const EvalMoment& at,
                                     const EvalWatch& watch) override;

 private:
  std::optional<CoreReport> score(Exec on, Model& model, int64_t step,
                                  const EvalWatch& watch) const;

  const Config run_config_;
  const CoreEvalConfig config_;
  const std::string run_, device_;
  const int64_t max_tokens_, batch_rows_;
  const EvaluationRanks ranks_;
  Tokenizer tokenizer_;
  std::vector<CoreExamples> examples_;
  std::vector<std::string> rows_sha256_;  // of the file of each task, when its rows were read
  std::vector<std::string> missing_;      // labels without a file, or not selected
  std::vector<int64_t> tokens_;           // estimate for the prompts of each task
};

// The rows of telemetry described above.
std::vector<EvalResult> core_results(const CoreReport& report);

}  // namespace assay
