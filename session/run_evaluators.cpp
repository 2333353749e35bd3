#include "session/run_evaluators.h"

#include <algorithm>

namespace assay {

namespace {

ValidationSet::Config validation_set(const Config& config, const RunData& data,
                                     const std::vector<std::string>& files, int64_t tokens) {
  return {.files = files,
          .hashed = data.hashed,
          .tokens = tokens,
          .sequence = config.run.sequence,
          .micro_batch = config.run.micro_batch,
          .vocab_size = id_limit(config, data)};
}

}  // namespace

RunEvaluators::RunEvaluators(const Config& config, const RunData& data, const std::string& run,
                             const std::string& device, const EvaluationRanks& ranks)
    : validation(validation_set(config, data, data.val, config.eval.tokens), config.eval.every,
                 data.token_bytes, data.mask_id, "val", ranks) {
  for (const SourceShards& source : data.source_val) {
    const int64_t share = config.eval.tokens / int64_t(data.source_val.size());
    const int64_t tokens = config.eval.source_tokens > 0 ? config.eval.source_tokens
                                                         : std::max(config.run.sequence, share);
    of_sources.push_back(std::make_unique<Validation>(
        validation_set(config, data, source.files, tokens), config.eval.every, data.token_bytes,
        data.mask_id, "val/" + source.name, ranks));
  }
  if (config.eval.samples) samples.emplace(config, data, run, ranks);
  if (config.eval.core) core.emplace(config, data, run, device, ranks);
}

void RunEvaluators::plan(MemoryPlan& plan, Model& model, int planned_ranks) {
  validation.plan(plan, planned_ranks);
  for (const auto& source : of_sources) source->plan(plan, planned_ranks);
  if (samples) samples->plan(plan, model);
}

std::vector<Evaluator*> RunEvaluators::all() {
  std::vector<Evaluator*> evaluators{&validation};
  for (const auto& source : of_sources) evaluators.push_back(source.get());
  if (samples) evaluators.push_back(&*samples);
  if (core) evaluators.push_back(&*core);
  return evaluators;
}

}  // namespace assay
