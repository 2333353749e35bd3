// Which format each operand of each matrix product has: recipes, and changes to them one operand at
// a time.
//
//   role       attention (the projections), dense_ffn, experts (routed), shared_experts
//   product    fprop: y = x W^T        dgrad: dx = dy W        wgrad: dW += dy^T x
//   operand    input (x), weight (W), gradient (dy)
//
// Embedding, head, norms, router and the attention core are never quantised. Blocks lie along the
// sum of the product: along the features in fprop and dgrad, along the tokens (of one expert) in
// wgrad. A weight is quantised from its fp32 master once an optimizer step. The recipes:
// precision.cpp, as one table; docs/precision.md says where they come from.
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
  bool rotated =
      false;  // by the 16-point random Hadamard transform along tokens: both operands of wgrad, or none

  bool quantised() const { return kind == Kind::kQuantised; }
  bool operator==(const OperandFormat&) const = default;
};
// "bf16", "mxfp8", "nvfp4+sr+rht", ...
std::string format_name(const OperandFormat& format);

// The two operands that each product has: fprop input and weight, dgrad gradient and weight, wgrad
// gradient and input.
struct ProductFormats {
  OperandFormat fprop_input, fprop_weight;
  OperandFormat dgrad_gradient, dgrad_weight;
  OperandFormat wgrad_gradient, wgrad_input;

  bool fprop() const { return fprop_input.quantised() || fprop_weight.quantised(); }
  bool dgrad() const { return dgrad_gradient.quantised() || dgrad_weight.quantised(); }
  bool wgrad() const { return wgrad_gradient.quantised() || wgrad_input.quantised(); }
  bool any() const { return fprop() || dgrad() || wgrad(); }
  // fprop and dgrad read the same numbers: formats whose blocks are the same along both axes.
  bool one_weight() const;
};

struct PrecisionTable {
  std::array<ProductFormats, kProductRoles> roles = {};
  int64_t bf16_first_layers = 0, bf16_last_layers = 0;
  int native_capability = 0;  // compute capability of the GPU whose own products are used; 0: none

  const ProductFormats& of(ProductRole role) const { return roles[size_t(role)]; }
  bool any() const;
};

// UserError: an unknown recipe; an override that names no such role, product, operand or format, or
// asks for what cannot be.
PrecisionTable precision_table(const PrecisionConfig& config, const ModelConfig& model);

// What the products of `role` in block `layer` use: the table's, or bf16 in the layers it leaves
// out.
ProductFormats formats_of(const PrecisionTable& table, ProductRole role, int64_t layer,
                          int64_t layers);

// UserError where a width is no whole number of blocks, with the names of both.
void require_whole_blocks(const PrecisionTable& table, const ModelConfig& model);

// True for every name of precision.recipe that has products in less than bf16.
bool is_quantised_recipe(std::string_view recipe);
std::string quantised_recipe_names();

// "nvfp4 with experts.wgrad=bf16, last 2 blocks in bf16"
std::string precision_text(const PrecisionConfig& config);
// One row a product of the roles that the model has: "experts  fprop  input nvfp4, weight
// nvfp4_2d".
std::vector<std::string> precision_rows(const PrecisionTable& table, const ModelConfig& model);

const char* product_role_name(ProductRole role);
// Does the model have products of the role?
bool has_role(const ModelConfig& model, ProductRole role);

}  // namespace assay
