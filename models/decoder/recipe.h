// precision.recipe and precision.products for a machine: what `auto` is there, and the type of the
// activations.
#pragma once

#include <string>

#include "engine/config/config.h"
#include "engine/model.h"

namespace assay {

enum class Recipe { kFp32, kBf16 };
const char* recipe_name(Recipe recipe);
// The type of activations and of products that are not quantised: bf16 for every quantised recipe.
// `auto` is bf16 on a GPU, and on a CPU whose bf16 products are faster (has_fast_bf16), else
// fp32. Throws UserError for an unknown name.
Recipe resolve_recipe(const std::string& name, Backend backend = Backend::kCpu);
// The recipe's name with `auto` resolved. Throws UserError for an unknown name.
std::string resolved_recipe(const std::string& name, Backend backend = Backend::kCpu);

// Resolves `auto` of precision.recipe and of precision.products. The latter is `native` on a GPU of
// compute capability 9.0 (capability 90) if a product of the model is native there, else `decoded`:
// on an H200 steps were 1.2 to 1.4 times as fast as with simulated products (docs/bench/h200.md).
// Throws UserError for an unknown recipe or override.
void resolve_precision(Config& config, Backend backend, int capability);

}  // namespace assay
