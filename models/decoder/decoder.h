// The decoder: embedding, L blocks of an attention half and a feed-forward half (dense or mixture
// of experts), final norm, head with cross-entropy. T is the type of activations and working
// weights: bf16 in recipe bf16, float in recipe fp32.
#pragma once

#include <memory>

#include "engine/config/config.h"
#include "engine/model.h"
#include "models/parameters/purpose.h"

namespace assay {

enum class Recipe { kFp32, kBf16 };
const char* recipe_name(Recipe recipe);
// What the products are in that no format of the recipe covers: bf16 for every quantised one.
// `auto` becomes bf16 on a GPU and where this CPU multiplies bf16 fast. UserError for an unknown
// name.
Recipe resolve_recipe(const std::string& name, Backend backend = Backend::kCpu);
// The name with `auto` resolved.
std::string resolved_recipe(const std::string& name, Backend backend = Backend::kCpu);

struct DecoderOptions {
  int64_t micro_batch = 1;  // B, the largest
  int64_t sequence = 1;     // T, the largest
  int32_t mask_id = -1;     // targets equal to it are not counted
  Backend backend = Backend::kCpu;
  PrecisionConfig precision = {};  // formats of the products; its recipe may be `auto`
  uint64_t seed = 1;               // of stochastic rounding
  int capability = 90;             // with kGpu: what products of formats it has (90: 9.0)
  Purpose purpose = Purpose::kTraining;
};

std::unique_ptr<Model> make_decoder(const ModelConfig& config, Recipe recipe,
                                    const DecoderOptions& options);

}  // namespace assay
