// The evaluators of a training run, in the order in which they run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "eval/validation.h"
#include "session/core_evaluator.h"
#include "session/run_data.h"
#include "session/sample_evaluator.h"

namespace assay {

struct RunEvaluators {
  // Reads the files they need. device: SessionDevice::name(). ranks: as in eval/ranks.h; they share
  // each evaluation, and have the same results. UserError as their constructors.
  RunEvaluators(const Config& config, const RunData& data, const std::string& run,
                const std::string& device, const EvaluationRanks& ranks = {});
  // Call after the model's own plan(). planned_ranks: of a launch that is planned, not there.
  void plan(MemoryPlan& plan, Model& model, int planned_ranks = 1);
  std::vector<Evaluator*> all();  // the validation loss first

  Validation validation;
  std::vector<std::unique_ptr<Validation>> of_sources;  // one per source of a mixture
  std::optional<TrainingSamples> samples;
  std::optional<TrainingCore> core;
};

}  // namespace assay
