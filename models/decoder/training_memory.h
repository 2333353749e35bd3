// The memory of a training run: model, optimizer, workspace of the products. The data loader and
// validation add their buffers to the plan when they know the files.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "comm/rank_groups.h"
#include "engine/optimizer.h"
#include "engine/part_sums.h"
#include "engine/rank_sums.h"
#include "engine/shards.h"
#include "models/decoder/decoder.h"

namespace assay {

// What a model's memory depends on beside the configuration.
struct ModelPlace {
  int32_t mask_id = -1;  // targets equal to it are not counted; -1: none
  Backend backend = Backend::kCpu;
  int capability = 90;  // of the GPU (90: 9.0)
  int ranks = 1, rank = 0;
  int64_t product_workspace = 0;  // bytes that a GPU's dense products may use, if above the usual
};

Layout layout_of(const Config& config, const ModelPlace& place);

// A decoder that trains by `config`. Inference changes micro_batch, sequence and purpose.
DecoderOptions decoder_options(const Config& config, const ModelPlace& place,
                               const RankGroups& ranks = {});

struct TrainingMemory {
  std::unique_ptr<Model> model;
  std::unique_ptr<PartSums> sums;
  // With ranks only.
  std::unique_ptr<Shards> shards;
  std::unique_ptr<RankSums> rank_sums;
  // With experts on several ranks: of the replicas of this rank's. No sums where there is one.
  std::unique_ptr<Shards> expert_shards;
  std::unique_ptr<RankSums> expert_sums;
  std::unique_ptr<Optimizer> optimizer;
  View<std::byte, 1> workspace;
  MemoryPlan plan;

  // Plans all buffers, allocates nothing. ranks: the groups of the ranks that share the batch; none
  // with one rank, or to plan for a rank of a launch that does not exist.
  TrainingMemory(const Config& config, Recipe recipe, const ModelPlace& place = {},
                 const RankGroups& ranks = {});
  // If memory is too small, throws UserError with the largest run.micro_batch that fits. of_ranks:
  // called before; throws NotEnoughMemory where the ranks beside this one leave too little.
  void require_room(const Config& config, Recipe recipe, const gpu::Context* gpu,
                    const std::function<void()>& of_ranks = {}) const;
  // Calls plan.allocate, after the same.
  void allocate(const Config& config, Recipe recipe, gpu::Context* gpu = nullptr,
                const std::function<void()>& of_ranks = {});
  // After allocate(): binds model and optimizer, and sets on.workspace.
  void bind(Exec& on);

 private:
  std::vector<Segment> share(const Config& config, const RankGroups& ranks);
  ModelPlace place_;
};

// The largest run.micro_batch below the configured one whose training step fits into `bytes` of GPU
// memory (with gpu) or host memory; 0 if none does.
int64_t largest_micro_batch(const Config& config, Recipe recipe, const ModelPlace& place,
                            const gpu::Context* gpu, size_t bytes);

// The text that --plan prints; nothing is allocated.
std::string memory_plan_text(const Config& config);

}  // namespace assay
