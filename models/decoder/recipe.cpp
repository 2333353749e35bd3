#include "models/decoder/recipe.h"

#include "base/check.h"
#include "cuda/scaled_matmul.h"
#include "models/linear/native_products.h"
#include "models/linear/precision.h"
#include "ops/instruction_path.h"

namespace assay {

const char* recipe_name(Recipe recipe) {
  return recipe == Recipe::kBf16 ? "bf16" : "fp32";
}

Recipe resolve_recipe(const std::string& name, Backend backend) {
  const bool fast_bf16 = backend == Backend::kGpu || has_fast_bf16();
  if (name == "fp32" || (name == "auto" && !fast_bf16)) return Recipe::kFp32;
  if (name == "bf16" || name == "auto" || is_quantised_recipe(name)) return Recipe::kBf16;
  throw UserError("precision.recipe '" + name + "' is unknown",
                  "use auto, fp32, bf16 or one of " + quantised_recipe_names());
}

std::string resolved_recipe(const std::string& name, Backend backend) {
  return is_quantised_recipe(name) ? name : recipe_name(resolve_recipe(name, backend));
}

namespace {

constexpr int kMeasuredCapability = 90;

bool has_faster_native_products(const Config& config, int capability) {
  if (capability != kMeasuredCapability || !gpu::built_with_scaled_matmul()) return false;
  const PrecisionTable table = precision_table(config.precision, config.model);
  return has_native_product(table, config.model, capability) &&
         native_problem(table, config.model, config.run.sequence).empty();
}

}  // namespace

void resolve_precision(Config& config, Backend backend, int capability) {
  PrecisionConfig& precision = config.precision;
  precision.recipe = resolved_recipe(precision.recipe, backend);
  if (precision.products != ProductsMode::kAuto) return;
  const bool native = backend == Backend::kGpu && has_faster_native_products(config, capability);
  precision.products = native ? ProductsMode::kNative : ProductsMode::kSimulated;
}

}  // namespace assay
