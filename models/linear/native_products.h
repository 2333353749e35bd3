// Native products of one weight: operands are quantised to codes by ops/quantise.h and multiplied
// by the hardware in their own formats (ops/scaled_linear.h); QuantisedProducts simulates the same
// products in bf16, with the same codes and draws. For training passes only: evaluation uses
// simulated products, so that a loss or score is computed the same way on every machine and for any
// number of rows.
//
//   native.forward(on, q, x, y, amax)       y = x W^T
//   native.code_gradient(on, q, dy, amax)   copies of dy for the next two, from one read
//   native.wgrad(on, q, x, dweight, amax)   dW += dy^T x
//   native.dgrad(on, q, dx, add)            dx = dy W + add
//
// Their parts, for an op that writes codes itself (models/linear/native_swiglu.h):
//
//   native.input_copy(q, rows), multiply_input(on, q, y)
//   native.gradient_row(q, rows), gradient_column(q, rows)
//   native.wgrad_input_copy(q, rows)
//   native.multiply_gradient(on, q, columns of dy, rows, dweight)
//
// For a stack of experts there are fprop and dgrad only (ops/grouped_scaled.h). Their operands:
//
//   native.code_input(on, q, x, amax), fprop_stack()
//   native.coded_gradient(q, rows) after code_gradient(), dgrad_stack()
#pragma once

#include <string>
#include <vector>

#include "models/linear/native_scratch.h"
#include "models/linear/product_site.h"
#include "models/linear/quantised_scratch.h"
#include "models/parameters/master_view.h"
#include "ops/grouped_scaled.h"

namespace assay {

// Why no product of the model can be native, whatever the GPU: cuBLASLt needs the widths and the
// tokens of its operands to be multiples of 16 bytes, of 4-bit ones 32 elements. "" if nothing
// prevents it.
std::string native_problem(const PrecisionTable& table, const ModelConfig& model, int64_t sequence);

// The sites of a weight's operands, as QuantScratch::not_finite reports them.
struct OperandSites {
  uint32_t fprop_input = 0, fprop_weight = 0;
  uint32_t dgrad_gradient = 0, dgrad_weight = 0;
  uint32_t wgrad_gradient = 0, wgrad_input = 0;
};

class NativeProducts {
 public:
  // Products that site.native_capability does not support stay simulated.
  explicit NativeProducts(const ProductSite& site);

  void number_operands(const OperandSites& sites) { sites_ = sites; }
  bool any() const { return fprop_ || dgrad_ || wgrad_; }
  bool fprop(const QuantPass& q) const { return fprop_ && in_force(q); }
  bool dgrad(const QuantPass& q) const { return dgrad_ && in_force(q); }
  bool wgrad(const QuantPass& q) const { return wgrad_ && in_force(q); }
  // True if no product of a training pass reads a decoded weight.
  bool has_all_of_weight(const QuantPass& q) const {
    return q.state.in_recipe() && fprop_ && dgrad_;
  }

  // spec: of W (out, in) or (E, out, in).
  void plan(MemoryPlan& plan, const ParameterSpec& spec);
  void refresh_weights(Exec on, const QuantPass& q, const MasterView& master) const;

  // amax: of x (of dy); empty if unknown.
  void forward(Exec on, const QuantPass& q, View<const bf16, 2> x, View<bf16, 2> y,
               View<const float, 1> amax) const;
  void code_gradient(Exec on, const QuantPass& q, View<const bf16, 2> dy,
                     View<const float, 1> amax) const {
    code_gradient(on, q, dy, amax, q.scratch.coded.column);
  }
  // columns: destination of dy's column copy.
  void code_gradient(Exec on, const QuantPass& q, View<const bf16, 2> dy, View<const float, 1> amax,
                     const CodedBuffer& columns) const;
  void wgrad(Exec on, const QuantPass& q, View<const bf16, 2> x, View<float, 2> dweight,
             View<const float, 1> amax) const;
  void dgrad(Exec on, const QuantPass& q, View<bf16, 2> dx, View<const bf16, 2> add) const;

  // Copies in the scratch of x (of dy) with `rows` rows, for an op that writes their codes; then
  // the products that read them.
  QuantisedCopy input_copy(const QuantPass& q, int64_t rows) const;
  QuantisedCopy gradient_row(const QuantPass& q, int64_t rows) const;
  QuantisedCopy gradient_column(const QuantPass& q, int64_t rows) const;
  QuantisedCopy wgrad_input_copy(const QuantPass& q, int64_t rows) const;
  void multiply_input(Exec on, const QuantPass& q, View<bf16, 2> y) const;
  void multiply_gradient(Exec on, const QuantPass& q, const CodedBuffer& columns, int64_t rows,
                         View<float, 2> dweight) const;
  const ProductFormats& formats() const { return formats_; }

  CodedMatrix code_input(Exec on, const QuantPass& q, View<const bf16, 2> x,
                         View<const float, 1> amax) const;
  CodedMatrix coded_gradient(const QuantPass& q, int64_t rows) const;
  CodedStack fprop_stack() const;
  CodedStack dgrad_stack() const;

 private:
  static bool in_force(const QuantPass& q) { return q.state.in_recipe() && q.state.training; }
  const std::string name_;
  const ProductFormats formats_;  // in the hardware's layout
  const bool fprop_, dgrad_, wgrad_;
  const uint64_t dgrad_stream_, wgrad_stream_, fprop_stream_, wgrad_input_stream_;
  OperandSites sites_;
  int64_t experts_ = 1, out_ = 0, in_ = 0;  // out_: of one expert
  CodedBuffer fprop_weight_, dgrad_weight_;
};

// One row per quantised role of the model: its native products on a GPU of that compute capability,
// and why the others are simulated: "attention  fprop, dgrad, wgrad native", "experts  simulated in
// bf16: ...".
std::vector<std::string> native_rows(const PrecisionTable& table, const ModelConfig& model,
                                     int capability);

// True if a GPU of that compute capability multiplies operands of any product of the model in their
// own formats. Widths and lengths may still prevent it: native_problem().
bool has_native_product(const PrecisionTable& table, const ModelConfig& model, int capability);

// What such a GPU multiplies in its own format, of each recipe that has any: "mxfp8 (dense
// layers)".
std::vector<std::string> native_recipes(int capability);

}  // namespace assay
