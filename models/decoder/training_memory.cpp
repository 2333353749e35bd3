#include "models/decoder/training_memory.h"

#include <sstream>

namespace assay {

Layout layout_of(const Config& config, const ModelPlace& place) {
  // Alone, as in an evaluation of a run of several ranks, one rank has all experts.
  const int64_t expert_ranks = place.ranks > 1 ? config.parallel.expert_ranks : 1;
  return {.ranks = place.ranks,
          .rank = place.rank,
          .parts = config.parallel.batch_parts(),
          .expert_ranks = int(expert_ranks)};
}

DecoderOptions decoder_options(const Config& config, const ModelPlace& place,
                               const RankGroups& ranks) {
  return {.micro_batch = config.run.micro_batch,
          .sequence = config.run.sequence,
          .mask_id = place.mask_id,
          .backend = place.backend,
          .precision = config.precision,
          .state = config.optimizer.state,
          .seed = static_cast<uint64_t>(config.run.seed),
          .layout = layout_of(config, place),
          .ranks = ranks,
          .expert_rows = config.parallel.expert_rows,
          .capability = place.capability,
          .product_workspace = place.product_workspace};
}

TrainingMemory::TrainingMemory(const Config& config, Recipe recipe, const ModelPlace& place,
                               const RankGroups& ranks)
    : model(make_decoder(config.model, recipe, decoder_options(config, place, ranks))),
      sums(std::make_unique<PartSums>(layout_of(config, place).local_parts())),
      place_(place) {
  const std::vector<Segment> owned = share(config, ranks);
  optimizer =
      std::make_unique<Optimizer>(config.optimizer, *model, static_cast<uint64_t>(config.run.seed),
                                  place.ranks > 1 ? &owned : nullptr);
  model->plan(plan);
  sums->plan(plan);
  if (rank_sums) rank_sums->plan(plan, model->parameters());
  if (expert_sums) expert_sums->plan(plan, model->parameters(), "replicas");
  optimizer->plan(plan);
  plan.add(Section::kScratch, "workspace", workspace, {model->workspace_bytes()});
}

// Makes the shards, and returns what this rank owns.
std::vector<Segment> TrainingMemory::share(const Config& config, const RankGroups& ranks) {
  if (place_.ranks == 1) return {};
  const Layout layout = layout_of(config, place_);
  std::vector<const ParameterSpec*> specs;
  for (const ParameterRef& p : model->parameters()) specs.push_back(p.spec);
  shards = std::make_unique<Shards>(specs, config.optimizer.kind, place_.ranks);
  rank_sums = std::make_unique<RankSums>(*shards, place_.rank, ranks.all);
  std::vector<Segment> owned = shards->of(place_.rank);
  if (layout.expert_ranks == 1) return owned;
  expert_shards = std::make_unique<Shards>(specs, config.optimizer.kind, layout.replicas(),
                                           Shards::kBucket, Shards::Of::kShares);
  if (layout.replicas() > 1) {
    expert_sums = std::make_unique<RankSums>(*expert_shards, layout.replica(), ranks.replicas);
  }
  const std::vector<Segment>& experts = expert_shards->of(layout.replica());
  owned.insert(owned.end(), experts.begin(), experts.end());
  return owned;
}

void TrainingMemory::require_room(const Config& config, Recipe recipe, const gpu::Context* gpu,
                                  const std::function<void()>& of_ranks) const {
  try {
    if (of_ranks) of_ranks();
    plan.require_room(gpu);
  } catch (const NotEnoughMemory& error) {
    // What was planned beside this, buffers of evaluations above all, does not shrink with it.
    const size_t own = TrainingMemory(config, recipe, place_).plan.bytes_on(gpu);
    const size_t others = plan.bytes_on(gpu) - std::min(own, plan.bytes_on(gpu));
    const size_t left = error.available_bytes - std::min(others, error.available_bytes);
    const int64_t fits = largest_micro_batch(config, recipe, place_, gpu, left);
    const std::string end =
        std::string(place_.ranks > 1 ? ", or start fewer ranks on a machine" : "") +
        "; the table above lists the buffers";
    if (fits == 0) {
      throw UserError(
          error.what(),
          "no run.micro_batch is small enough: make the model or run.sequence smaller" + end);
    }
    throw UserError(error.what(),
                    strprintf("run.micro_batch %ld is the largest that would fit (it is %ld)",
                              long(fits), long(config.run.micro_batch)) +
                        end);
  }
}

void TrainingMemory::allocate(const Config& config, Recipe recipe, gpu::Context* gpu,
                              const std::function<void()>& of_ranks) {
  require_room(config, recipe, gpu, of_ranks);
  plan.allocate(gpu);
}

void TrainingMemory::bind(Exec& on) {
  on.workspace = workspace;
  model->bind(on);
  sums->bind(plan);
  if (rank_sums) rank_sums->bind(model->parameters());
  if (expert_sums) expert_sums->bind(model->parameters());
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
