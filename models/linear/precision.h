// The format of each operand of each matrix product: recipes, and overrides of single operands.
//
//   role       attention (the projections), dense_ffn, experts (routed), shared_experts
//   product    fprop: y = x W^T        dgrad: dx = dy W        wgrad: dW += dy^T x
//   operand    input (x), weight (W), gradient (dy)
//
// Embedding, head, norms, router and the attention core are never quantised. Blocks run along the
// axis that the product sums over: features in fprop and dgrad, tokens (of one expert) in wgrad. A
// weight is quantised from its master once per optimizer step. The recipes are one table in
// precision.cpp; docs/precision.md gives their sources.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config/config.h"
#include "engine/parameter_spec.h"
#include "ops/quantise_format.h"

namespace assay {

enum class ProductRole { kAttention, kDenseFfn, kExperts, kSharedExperts };
enum class Product { kFprop, kDgrad, kWgrad };
enum class Operand { kInput, kWeight, kGradient };
inline constexpr int kProductRoles = 4;

struct OperandFormat {
  enum class Kind { kBf16, kQuantised };
  Kind kind = Kind::kBf16;
  QuantFormat format = {ElementFormat::kE4M3, ScaleKind::kTensor};
  // By the 16-point random Hadamard transform along tokens: both operands of wgrad, or none.
  bool rotated = false;

  bool quantised() const { return kind == Kind::kQuantised; }
  bool operator==(const OperandFormat&) const = default;
};
// "bf16", "mxfp8", "nvfp4+sr+rht", ...
std::string format_name(const OperandFormat& format);

// The formats of both operands of each product.
struct ProductFormats {
  OperandFormat fprop_input, fprop_weight;
  OperandFormat dgrad_gradient, dgrad_weight;
  OperandFormat wgrad_gradient, wgrad_input;

  bool fprop() const { return fprop_input.quantised() || fprop_weight.quantised(); }
  bool dgrad() const { return dgrad_gradient.quantised() || dgrad_weight.quantised(); }
  bool wgrad() const { return wgrad_gradient.quantised() || wgrad_input.quantised(); }
  bool any() const { return fprop() || dgrad() || wgrad(); }
  // True if fprop and dgrad can read the same copy of the weight: one format, whose blocks are the
  // same along both axes.
  bool one_weight() const;
};

struct PrecisionTable {
  std::array<ProductFormats, kProductRoles> roles = {};
  int64_t bf16_first_layers = 0, bf16_last_layers = 0;
  int native_capability = 0;  // compute capability for native products; 0: all simulated

  const ProductFormats& of(ProductRole role) const { return roles[size_t(role)]; }
  bool any() const;
};

// A recipe without quantised products (also an unknown one) gives a table in bf16. Throws UserError
// for an override with an unknown role, product, operand or format, or an impossible combination.
PrecisionTable precision_table(const PrecisionConfig& config, const ModelConfig& model);

// The formats of `role` in block `layer` of `layers`: the table's, or bf16 in its bf16 layers.
ProductFormats formats_of(const PrecisionTable& table, ProductRole role, int64_t layer,
                          int64_t layers);

// Whether no forward product makes of a row what depends on the rows beside it.
bool rows_have_own_scales(const PrecisionTable& table);
// The same of all products of a training step that the model makes, backward ones too. Blocks along
// the tokens do not count: in a product of all tokens they are the same in any micro-batch.
bool rows_train_apart(const PrecisionTable& table, const ModelConfig& model);

// Throws UserError with names and sizes if a width is not a multiple of its format's block.
void require_whole_blocks(const PrecisionTable& table, const ModelConfig& model);

// True for each value of precision.recipe that quantises products.
bool is_quantised_recipe(std::string_view recipe);
std::string quantised_recipe_names();

// "nvfp4 with experts.wgrad=bf16, last 2 blocks in bf16"
std::string precision_text(const PrecisionConfig& config);
// One row per product of each quantised role of the model: "experts  fprop  input nvfp4, weight
// nvfp4_2d".
std::vector<std::string> precision_rows(const PrecisionTable& table, const ModelConfig& model);

// The lines of precision.override that name a role of which the model has no products. Lines
// without a role name all. Throws UserError as precision_table() does.
std::vector<std::string> idle_overrides(const PrecisionConfig& config, const ModelConfig& model);

const char* product_role_name(ProductRole role);
// True if the model has products of the role.
bool has_role(const ModelConfig& model, ProductRole role);

}  // namespace assay
