// The decoder: embedding, L blocks of an attention sublayer and a feed-forward sublayer (dense or
// mixture of experts), final norm, head with cross-entropy. T is the type of activations and
// working weights: bf16 in recipe bf16, float in recipe fp32.
#pragma once

#include <memory>

#include "comm/layout.h"
#include "comm/rank_groups.h"
#include "engine/config/config.h"
#include "engine/model.h"
#include "models/decoder/recipe.h"
#include "models/parameters/purpose.h"

namespace assay {

struct DecoderOptions {
  int64_t micro_batch = 1;  // largest B
  int64_t sequence = 1;     // largest T
  int32_t mask_id = -1;     // targets equal to it are not counted
  Backend backend = Backend::kCpu;
  PrecisionConfig precision = {};          // formats of the products; its recipe may be `auto`
  StateFormat state = StateFormat::kFp32;  // of the masters
  uint64_t seed = 1;                       // of stochastic rounding
  Layout layout = {};                      // the rank's parts, divided by Model::next_part
  // With layout.expert_ranks > 1: the groups of the ranks (null if memory is only planned), and the
  // rows that a rank has memory for, relative to the average. All calls that compute are then
  // collective in the expert group.
  RankGroups ranks = {};
  double expert_rows = 1.5;
  int capability = 90;  // with kGpu: compute capability, decides native products (90: 9.0)
  int64_t product_workspace = 0;  // bytes of workspace, with kGpu, if the products need less
  Purpose purpose = Purpose::kTraining;
};

// Plans and allocates nothing yet: see Model::plan. Throws UserError if a quantised width is not a
// multiple of its format's block.
std::unique_ptr<Model> make_decoder(const ModelConfig& config, Recipe recipe,
                                    const DecoderOptions& options);

}  // namespace assay
