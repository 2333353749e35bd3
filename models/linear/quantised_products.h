// What the three products of one weight read where a recipe quantises them: decoded operands in
// shared scratch, copies of the weight, the tensors' scales for the epilogues, and what sampled
// steps measure of the formats.
//
//   products.fprop_input(on, scratch, x)         x, blocks along its features
//   products.gradient(on, scratch, dy)           dy for dgrad (blocks along its features) and for wgrad (along tokens), one read
//   products.wgrad_input(on, scratch, x, ...)    x, blocks along the tokens of each expert
//
// Results lie in the scratch: one product at a time. An operand that stays in bf16 is passed
// through.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/linear/native_products.h"
#include "models/linear/precision.h"
#include "models/linear/quantised_scratch.h"
#include "models/linear/weight_copies.h"

namespace assay {

// The signs of every rotation: one vector for all layers, as the published recipe has it.
inline constexpr uint32_t kRotationSigns = stream_id("hadamard16") & 0xFFFF;

// An operand as the product reads it.
template <typename T>
struct ProductOperand {
  View<const T, 2> values;
  View<const float, 1> scale = {};  // S, 1 / S where a tensor scale is left to the epilogue
  bool gathered = false;            // its rows lie as AssignedRows::gather orders them
};
template <typename T>
struct GradientOperands {
  ProductOperand<T> row, column;  // of dgrad, of wgrad
};
// Assignments sorted by expert; empty in a dense layer.
struct AssignedRows {
  View<const int32_t, 1> gather = {};   // (A)      row of x of each
  View<const int32_t, 1> offsets = {};  // (E + 1)
};

class QuantisedProducts {
 public:
  struct Site {
    std::string weight;  // name of the parameter
    ProductRole role;
    int64_t layer;
    int native_capability =
        0;  // compute capability of the GPU whose own products are used; 0: none
    ExpertWidths experts = {};
  };
  QuantisedProducts(Site site, const ProductFormats& formats);

  // Its operands have the numbers first + 1 to first + kOperands.
  static constexpr uint32_t kOperands = 6;
  void number_operands(uint32_t first);
  void plan(MemoryPlan& plan, const ParameterSpec& spec, Backend backend);
  // Copies of the weight from its master, as the phase has it.
  void refresh_weights(Exec on, const QuantScratch& q) const;
  // What refresh_weights left out because training does without it.
  void refresh_for_evaluation(Exec on, const QuantScratch& q) const;
  void begin_measures(Exec on, const QuantScratch& q) const;
  void read_measures(Exec on) const;

  // Does a pass over x (over dy) for its largest magnitude fall away where that is known? In some
  // phase.
  bool needs_input_amax() const;
  bool needs_gradient_amax() const;

  // amax: of x (of dy), where it is known.
  using Operand = ProductOperand<bf16>;
  Operand fprop_input(Exec on, const QuantScratch& q, View<const bf16, 2> x,
                      View<const float, 1> amax) const;
  // A copy that a native product does not read is made in sampled steps only.
  GradientOperands<bf16> gradient(Exec on, const QuantScratch& q, View<const bf16, 2> dy,
                                  const AssignedRows& rows, View<const float, 1> amax) const;
  Operand wgrad_input(Exec on, const QuantScratch& q, View<const bf16, 2> x,
                      const AssignedRows& rows, View<const float, 1> amax) const;

  // Null where the products of the formats are decoded.
  const NativeProducts* native() const { return native_.get(); }
  WeightCopies& weights() { return weights_; }
  const WeightCopies& weights() const { return weights_; }
  // Empty where the weight's scale is not left to the epilogue.
  View<const float, 1> fprop_weight_scale(const QuantScratch& q) const;
  View<const float, 1> dgrad_weight_scale(const QuantScratch& q) const;

  const Site& site() const { return site_; }
  // Of every operand that is quantised. After MemoryPlan::allocate().
  std::vector<QuantisedOperandState> states() const;

 private:
  enum MeasuredOperand { kInput, kGradient, kWeight, kMeasuredOperands };
  static_assert(kOperands == 2 * kMeasuredOperands);
  enum Copy { kRow, kColumn };  // of a weight: of fprop, of dgrad
  uint32_t site_of(MeasuredOperand operand, Copy copy) const {
    return first_site_ + 1 + uint32_t(2 * operand + copy);
  }
  WeightCopies::Sites weight_sites() const {
    return {.fprop = site_of(kWeight, kRow), .dgrad = site_of(kWeight, kColumn)};
  }
  // Without its copies. column: of the column copy.
  FakeQuantise<bf16> operation(const QuantScratch& q, MeasuredOperand operand,
                               View<const bf16, 2> x, const AssignedRows& rows,
                               const OperandFormat& column, View<const float, 1> amax) const;
  View<double, 1> measures_of(const QuantScratch& q, MeasuredOperand operand) const;

  const Site site_;
  const ProductFormats formats_;
  const uint64_t dgrad_stream_, wgrad_stream_, fprop_stream_, wgrad_input_stream_;
  uint32_t first_site_ = 0;
  WeightCopies weights_;
  std::unique_ptr<NativeProducts> native_;
  View<double, 2> measures_;       // (kMeasuredOperands, 2 kFakeMeasures)   of a sampled step
  View<double, 2> read_measures_;  // the host's
};

// The word, if the op that writes a weight's x (its dy) shall raise it. products: null where
// nothing is quantised.
View<float, 1> input_amax_slot(const QuantisedProducts* products, const QuantScratch& q,
                               View<float, 1> amax_slot);
View<float, 1> gradient_amax_slot(const QuantisedProducts* products, const QuantScratch& q,
                                  View<float, 1> amax_slot);

}  // namespace assay
