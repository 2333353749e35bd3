#include "models/decoder/training_memory.h"

#include <sstream>

namespace assay {

Layout layout_of(const Config& config, const ModelPlace& place) {
  return {.ranks = place.ranks, .rank = place.rank, .parts = config.parallel.batch_parts()};
}

DecoderOptions decoder_options(const Config& config, const ModelPlace& place) {
  return {.micro_batch = config.run.micro_batch,
          .sequence = config.run.sequence,
          .mask_id = place.mask_id,
          .backend = place.backend,
          .precision = config.precision,
          .state = config.optimizer.state,
          .seed = static_cast<uint64_t>(config.run.seed),
          .layout = layout_of(config, place),
          .capability = place.capability};
}

TrainingMemory::TrainingMemory(const Config& config, Recipe recipe, const ModelPlace& place,
                               Group* ranks)
    : model(make_decoder(config.model, recipe, decoder_options(config, place))),
      sums(std::make_unique<PartSums>(layout_of(config, place).local_parts())),
      place_(place) {
  if (place.ranks > 1) {
    std::vector<const ParameterSpec*> specs;
    for (const ParameterRef& p : model->parameters()) specs.push_back(p.spec);
    shards = std::make_unique<Shards>(specs, config.optimizer.kind, place.ranks);
    rank_sums = std::make_unique<RankSums>(*shards, place.rank, ranks);
  }
  optimizer = std::make_unique<Optimizer>(
      config.optimizer, *model, static_cast<uint64_t>(config.run.seed), shards.get(), place.rank);
  model->plan(plan);
  sums->plan(plan);
  if (rank_sums) rank_sums->plan(plan, model->parameters());
  optimizer->plan(plan);
  plan.add(Section::kScratch, "workspace", workspace, {model->workspace_bytes()});
}

void TrainingMemory::allocate(const Config& config, Recipe recipe, gpu::Context* gpu) {
  try {
    plan.allocate(gpu);
  } catch (const NotEnoughMemory& error) {
    const int64_t fits = largest_micro_batch(config, recipe, place_, gpu, error.available_bytes);
    if (fits == 0) {
      throw UserError(error.what(),
                      "no run.micro_batch is small enough: make the model or run.sequence smaller; "
                      "the table above lists the buffers");
    }
    throw UserError(error.what(),
                    strprintf("run.micro_batch %ld is the largest that would fit (it is %ld); the "
                              "table above lists the buffers",
                              long(fits), long(config.run.micro_batch)));
  }
}

void TrainingMemory::bind(Exec& on) {
  on.workspace = workspace;
  model->bind(on);
  sums->bind(plan);
  if (rank_sums) rank_sums->bind(model->parameters());
  optimizer->bind();
}

int64_t largest_micro_batch(const Config& config, Recipe recipe, const ModelPlace& place,
                            const gpu::Context* gpu, size_t bytes) {
  const int64_t sequences = config.run.batch_tokens / config.run.sequence;
  Config smaller = config;
  int64_t& micro_batch = smaller.run.micro_batch;
  for (--micro_batch; micro_batch > 0; --micro_batch) {
    if (sequences % (micro_batch * config.parallel.batch_parts()) != 0) continue;
    const TrainingMemory memory(smaller, recipe, place);
    if (memory.plan.bytes_on(gpu) <= bytes) return micro_batch;
  }
  return 0;
}

std::string memory_plan_text(const Config& config) {
  const TrainingMemory memory(config, resolve_recipe(config.precision.recipe));
  std::ostringstream text;
  memory.plan.print(text);
  return text.str();
}

}  // namespace assay
