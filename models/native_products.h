// The products of one weight matrix by hardware that multiplies its formats: operands are packed by ops/quantise.h and multiplied by
// ops/scaled_linear.h, where QuantisedProducts decodes them and multiplies in bf16. Codes and draws are the same in both.
//
//   native.forward(on, scratch, x, y)          y = x W^T
//   native.code_gradient(on, scratch, dy)      the copies of dy that the next two read, from one read
//   native.wgrad(on, scratch, x, dweight)      dW += dy^T x
//   native.dgrad(on, scratch, dx, add)         dx = dy W + add
#pragma once

#include <string>
#include <vector>

#include "models/coded_scratch.h"
#include "models/precision.h"
#include "models/quant_scratch.h"

namespace assay {

class NativeProducts {
 public:
  // capability: of the GPU (90: 9.0); a product that it has not stays decoded.
  NativeProducts(std::string weight, const ProductFormats& formats, int capability);

  bool any() const { return fprop_ || dgrad_ || wgrad_; }
  bool fprop(const QuantScratch& q) const { return fprop_ && in_force(q); }
  bool dgrad(const QuantScratch& q) const { return dgrad_ && in_force(q); }
  bool wgrad(const QuantScratch& q) const { return wgrad_ && in_force(q); }
  // No product reads a decoded weight.
  bool has_all_of_weight(const QuantScratch& q) const { return fprop(q) && dgrad(q); }

  // Of W (out, in).
  void plan(MemoryPlan& plan, int64_t out, int64_t in);
  void refresh_weights(Exec on, const QuantScratch& q, View<const float, 1> master) const;

  void forward(Exec on, const QuantScratch& q, View<const bf16, 2> x, View<bf16, 2> y) const;
  void code_gradient(Exec on, const QuantScratch& q, View<const bf16, 2> dy) const;
  void wgrad(Exec on, const QuantScratch& q, View<const bf16, 2> x, View<float, 2> dweight) const;
  void dgrad(Exec on, const QuantScratch& q, View<bf16, 2> dx, View<const bf16, 2> add) const;

 private:
  static bool in_force(const QuantScratch& q) { return q.phase == PrecisionPhase::kRecipe; }
  const std::string name_;
  const ProductFormats formats_;  // laid out for the hardware
  const bool fprop_, dgrad_, wgrad_;
  const uint64_t dgrad_stream_, wgrad_stream_, fprop_stream_, wgrad_input_stream_;
  int64_t out_ = 0, in_ = 0;
  CodedBuffer fprop_weight_, dgrad_weight_;
};

// What a GPU of that compute capability does with the products of the roles that the model has and the table quantises, a row a
// role: "attention  fprop, dgrad, wgrad in their own formats", "experts  decoded: ...".
std::vector<std::string> native_rows(const PrecisionTable& table, const ModelConfig& model,
                                     int capability);

}  // namespace assay
