// The operands of one weight's three products under a quantised recipe: decoded operands in shared
// scratch, copies of the weight, the tensor scales for the epilogues, and the quantisation measures
// of sampled steps.
//
//   products.fprop_input(on, q, x, amax)         x, blocks along its features
//   products.gradient(on, q, dy, rows, amax)     dy for dgrad (blocks along its features) and for
//                                                wgrad (blocks along tokens), from one read
//   products.wgrad_input(on, q, x, rows, amax)   x, blocks along the tokens of each expert
//
// Results are in the scratch of q, valid until the next product. An operand that stays in bf16 is
// returned unchanged.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/group.h"
#include "models/linear/native_products.h"
#include "models/linear/quantised_scratch.h"
#include "models/linear/weight_copies.h"

namespace assay {

// The signs of every rotation: one vector for all layers, as in the published recipe.
inline constexpr uint32_t kRotationSigns = stream_id("hadamard16") & 0xFFFF;

// An operand as the product reads it.
template <typename T>
struct ProductOperand {
  View<const T, 2> values;
  View<const float, 1> scale = {};  // 1 / S, S if the epilogue applies a tensor scale; or empty
  bool gathered = false;            // rows are in the order of AssignedRows::gather
};
template <typename T>
struct GradientOperands {
  ProductOperand<T> row, column;  // for dgrad, for wgrad
};
// Assignments sorted by expert; empty in a dense layer.
struct AssignedRows {
  View<const int32_t, 1> gather = {};   // (A)      row of x of each assignment
  View<const int32_t, 1> offsets = {};  // (E + 1)
};

class QuantisedProducts {
 public:
  explicit QuantisedProducts(const ProductSite& site);

  // Gives its operands the sites first + 1 to first + kOperands.
  static constexpr uint32_t kOperands = 6;
  void number_operands(uint32_t first);
  void plan(MemoryPlan& plan, const ParameterSpec& spec, Backend backend);
  // Remakes the copies of the weight from its master, for the phase of q.
  void refresh_weights(Exec on, const QuantPass& q) const;
  // Remakes the decoded copies that refresh_weights skips because training does not read them.
  void refresh_for_evaluation(Exec on, const QuantPass& q) const;
  void begin_measures(Exec on, const QuantPass& q) const;
  void read_measures(Exec on) const;
  // After read_measures() and a wait: adds the measures of all ranks' inputs and gradients, in the
  // order of ranks.
  void add_measures(Group& ranks) const;

  // True if a known amax of x (of dy) saves a pass over it, in any phase.
  bool needs_input_amax() const;
  bool needs_gradient_amax() const;

  // amax: of x (of dy); empty if unknown.
  using Operand = ProductOperand<bf16>;
  Operand fprop_input(Exec on, const QuantPass& q, View<const bf16, 2> x,
                      View<const float, 1> amax) const;
  // A copy that no simulated product reads is made in sampled steps only.
  GradientOperands<bf16> gradient(Exec on, const QuantPass& q, View<const bf16, 2> dy,
                                  const AssignedRows& rows, View<const float, 1> amax) const;
  Operand wgrad_input(Exec on, const QuantPass& q, View<const bf16, 2> x, const AssignedRows& rows,
                      View<const float, 1> amax) const;

  // Null if all products are simulated.
  const NativeProducts* native() const { return native_.get(); }
  WeightCopies& weights() { return weights_; }
  const WeightCopies& weights() const { return weights_; }
  // 1 / S, S of the weight for the epilogue; empty if it has no tensor scale.
  View<const float, 1> fprop_weight_scale(const QuantPass& q) const;
  View<const float, 1> dgrad_weight_scale(const QuantPass& q) const;

  const ProductSite& site() const { return site_; }
  // The state of each quantised operand. After MemoryPlan::allocate().
  std::vector<QuantisedOperandState> states() const;

 private:
  enum MeasuredOperand { kInput, kGradient, kWeight, kMeasuredOperands };
  static_assert(kOperands == 2 * kMeasuredOperands);
  enum Copy { kRow, kColumn };  // of a weight: for fprop, for dgrad
  uint32_t site_of(MeasuredOperand operand, Copy copy) const {
    return first_site_ + 1 + uint32_t(2 * operand + copy);
  }
  WeightCopies::Sites weight_sites() const {
    return {.fprop = site_of(kWeight, kRow), .dgrad = site_of(kWeight, kColumn)};
  }
  // The operation without its copies. column: format of the column copy.
  FakeQuantise<bf16> operation(const QuantPass& q, MeasuredOperand operand, View<const bf16, 2> x,
                               const AssignedRows& rows, const OperandFormat& column,
                               View<const float, 1> amax) const;
  View<double, 1> measures_of(const QuantPass& q, MeasuredOperand operand) const;

  const ProductSite site_;
  const ProductFormats& formats_ = site_.formats;
  const uint64_t dgrad_stream_, wgrad_stream_, fprop_stream_, wgrad_input_stream_;
  uint32_t first_site_ = 0;
  WeightCopies weights_;
  std::unique_ptr<NativeProducts> native_;
  View<double, 2> measures_;       // (kMeasuredOperands, 2 kFakeMeasures)   of a sampled step
  View<double, 2> read_measures_;  // on the host
};

// The amax slot if the products need the amax of x (of dy) in this phase, else empty. products:
// null if not quantised.
View<float, 1> input_amax_slot(const QuantisedProducts* products, const QuantPass& q,
                               View<float, 1> amax_slot);
View<float, 1> gradient_amax_slot(const QuantisedProducts* products, const QuantPass& q,
                                  View<float, 1> amax_slot);

}  // namespace assay
