// The linear layers of a block: a weight, its gradient, and its three products (fprop, dgrad,
// wgrad) in the formats of the precision table.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "models/linear/quantised_products.h"
#include "models/parameters/store.h"
#include "ops/product_scale.h"
#include "ops/weight_matrix.h"

namespace assay {

// The operands of the three products of one weight: unchanged, or quantised by QuantisedProducts.
// Weight: WeightMatrix<T> or WeightStack<T>.
template <typename T, typename Weight>
class WeightProducts {
 public:
  // In recipe fp32 nothing is quantised.
  explicit WeightProducts(const ProductSite& site);

  void bind(const ParameterStore<T>& store);
  // amax: of x (of dy); empty if unknown.
  ProductOperand<T> input(Exec on, const QuantPass& q, View<const T, 2> x,
                          View<const float, 1> amax) const;
  GradientOperands<T> gradient(Exec on, const QuantPass& q, View<const T, 2> dy,
                               const AssignedRows& rows, View<const float, 1> amax) const;
  ProductOperand<T> wgrad_input(Exec on, const QuantPass& q, View<const T, 2> x,
                                const AssignedRows& rows, View<const float, 1> amax) const;
  Weight fprop_weight() const;
  Weight dgrad_weight() const;
  ProductScale fprop_scale(const QuantPass& q, const ProductOperand<T>& input) const;
  ProductScale dgrad_scale(const QuantPass& q, const ProductOperand<T>& gradient) const;

  // How wgrad adds to the parameter's gradient. Quantised products always add.
  GradientSum gradient_sum(const QuantPass& q) const {
    return quantised_ ? GradientSum::kAdd : q.state.gradients;
  }
  // Adds the name of the gradient for which that may be kStore.
  void name_stored(std::vector<std::string>& names) const {
    if (!quantised_) names.push_back(name_);
  }

  const std::string& name() const { return name_; }
  // Null if no product is quantised.
  QuantisedProducts* quantised() const { return quantised_.get(); }
  // Null if no product is native.
  const NativeProducts* native() const { return quantised_ ? quantised_->native() : nullptr; }

 private:
  std::string name_;
  std::unique_ptr<QuantisedProducts> quantised_;
  Weight plain_ = {};  // used without quantised_
};

// Amax slots of an FFN's operands, updated by the producing op; empty if unused.
struct FfnAmax {
  View<float, 1> x, h, dy, dgate_up;
};

// The entries of `words` that the current phase's products need; the others are empty. gate_up,
// down: null if not quantised.
FfnAmax ffn_amax_slots(const QuantisedProducts* gate_up, const QuantisedProducts* down,
                       const QuantPass& q, const FfnAmax& words);

template <typename T>
class Projection {
 public:
  explicit Projection(const ProductSite& site) : products_(site) {}

  void bind(const ParameterStore<T>& store);
  // y = x W^T; x (N, in), y (N, out). x_amax: amax of x; empty if unknown.
  void forward(Exec on, const QuantPass& q, View<const T, 2> x, View<T, 2> y,
               View<const float, 1> x_amax) const;
  // y = resid + gain x W^T, rounded once; not with a quantised weight. y is not resid.
  void forward_onto(Exec on, View<const T, 2> x, View<const T, 2> resid, float gain,
                    View<T, 2> y) const;
  struct Backward {
    View<T, 2> dx;
    View<const T, 2> dy, x;
    View<const float, 1> dy_amax, x_amax;  // empty if unknown
    View<const T, 2> add = {};             // dx = dy_gain dy W + add; may be dx
    float dy_gain = 1.0f;                  // other than 1 only where takes_gain()
  };
  // dW += dy_gain dy^T x, then dx.
  void backward(Exec on, const QuantPass& q, const Backward& a) const;
  // The same if x is swiglu(gate_up): dx goes on to dgate_up, in one kernel where that pays.
  struct SwigluBackward {
    View<T, 2> dgate_up, dx;  // (N, 2 in), (N, in)   dx: scratch
    View<const T, 2> dy, x, gate_up;
    View<const float, 1> dy_amax, x_amax;  // empty if unknown
    View<float, 1> dgate_up_amax;          // raised; may be empty
  };
  void backward_to_gate_up(Exec on, const QuantPass& q, const SwigluBackward& a) const;

  // Whether backward's products multiply by the gain of dy themselves. A quantised dy has its gain
  // before it is rounded; on a CPU products with a factor are slower.
  bool takes_gain(Exec on) const;

  QuantisedProducts* quantised() const { return products_.quantised(); }
  // Null if no product is native.
  const NativeProducts* native() const { return products_.native(); }
  View<float, 2> dweight() const { return dweight_; }
  void name_stored(std::vector<std::string>& names) const { products_.name_stored(names); }

 private:
  void decoded_wgrad(Exec on, const QuantPass& q, const GradientOperands<T>& dy,
                     const Backward& a) const;
  void decoded_dgrad(Exec on, const QuantPass& q, const GradientOperands<T>& dy,
                     const Backward& a) const;
  void native_backward(Exec on, const QuantPass& q, const NativeProducts& native,
                       const Backward& a) const;

  WeightProducts<T, WeightMatrix<T>> products_;
  View<float, 2> dweight_;
};

// The two linear layers of the routed experts' FFN, fused with its activation. A assignments of N
// tokens, sorted by expert.
template <typename T>
class ExpertProjections {
 public:
  // site.weight: NAME. The weights are NAME.gate_up (E, 2F, C) and NAME.down (E, C, F).
  explicit ExpertProjections(const ProductSite& site)
      : gate_up_(site.named(site.weight + ".gate_up")), down_(site.named(site.weight + ".down")) {}

  void bind(const ParameterStore<T>& store);
  struct Forward {
    View<T, 2> y, gate_up, h;  // (A, C), (A, 2F), (A, F)
    View<const T, 2> x;        // (N, C)
    FfnAmax amax;
  };
  void forward(Exec on, const QuantPass& q, const AssignedRows& rows, const Forward& a) const;
  struct Backward {
    View<T, 2> dx;            // (A, C)   per assignment
    View<T, 2> dgate_up, dh;  // (A, 2F), (A, F)   scratch
    View<const T, 2> dy, x, gate_up, h;
    FfnAmax amax;
    // acc (E, 2F, C), (E, C, F); empty: the gradients of the parameters, which QuantPass may store
    View<float, 3> dgate_up_weight = {}, ddown_weight = {};
  };
  void backward(Exec on, const QuantPass& q, const AssignedRows& rows, const Backward& a) const;

  // The gradients of the parameters.
  View<float, 3> gate_up_gradient() const { return dgate_up_; }
  View<float, 3> down_gradient() const { return ddown_; }

  void name_stored(std::vector<std::string>& names) const {
    gate_up_.name_stored(names);
    down_.name_stored(names);
  }
  QuantisedProducts* gate_up_quantised() const { return gate_up_.quantised(); }
  QuantisedProducts* down_quantised() const { return down_.quantised(); }

 private:
  void gate_up_forward(Exec on, const QuantPass& q, const AssignedRows& rows,
                       const Forward& a) const;
  void down_forward(Exec on, const QuantPass& q, const AssignedRows& rows, const Forward& a) const;
  void gate_up_backward(Exec on, const QuantPass& q, const AssignedRows& rows,
                        const Backward& a) const;
  void down_backward(Exec on, const QuantPass& q, const AssignedRows& rows,
                     const Backward& a) const;
  WeightProducts<T, WeightStack<T>> gate_up_, down_;
  View<float, 3> dgate_up_, ddown_;
};

}  // namespace assay
