// The linear layers of a block: a weight, its gradient, and its three products in the formats of the precision table.
#pragma once

#include <memory>
#include <string>

#include "models/parameter_store.h"
#include "models/quantised_products.h"
#include "ops/product_scale.h"
#include "ops/weight_matrix.h"

namespace assay {

// Which formats the products of a weight have.
struct ProjectionSite {
  ProductRole role;
  int64_t layer;
  ProductFormats formats;
  int native_capability = 0;  // compute capability of the GPU whose own products are used; 0: none
};

// What the three products of one weight read: the operands as they are, or what QuantisedProducts makes of them.
// Weight: WeightMatrix<T> or WeightStack<T>.
template <typename T, typename Weight>
class WeightProducts {
 public:
  // In recipe fp32 nothing is quantised.
  WeightProducts(std::string weight, const ProjectionSite& site);

  void bind(const ParameterStore<T>& store);
  ProductOperand<T> input(Exec on, const QuantScratch& q, View<const T, 2> x) const;
  GradientOperands<T> gradient(Exec on, const QuantScratch& q, View<const T, 2> dy,
                               const AssignedRows& rows = {}) const;
  ProductOperand<T> wgrad_input(Exec on, const QuantScratch& q, View<const T, 2> x,
                                const AssignedRows& rows = {}) const;
  Weight fprop_weight() const;
  Weight dgrad_weight() const;
  ProductScale fprop_scale(const QuantScratch& q, const ProductOperand<T>& input) const;
  ProductScale dgrad_scale(const QuantScratch& q, const ProductOperand<T>& gradient) const;

  const std::string& name() const { return name_; }
  // Null where nothing is quantised.
  QuantisedProducts* quantised() const { return quantised_.get(); }
  // Null where nothing is multiplied in its own format: always for stacks.
  const NativeProducts* native() const { return quantised_ ? quantised_->native() : nullptr; }

 private:
  std::string name_;
  std::unique_ptr<QuantisedProducts> quantised_;
  Weight plain_ = {};  // not with quantised_
};

template <typename T>
class Projection {
 public:
  Projection(const std::string& weight, const ProjectionSite& site) : products_(weight, site) {}

  void bind(const ParameterStore<T>& store);
  // y = x W^T.
  void forward(Exec on, const QuantScratch& q, View<const T, 2> x, View<T, 2> y) const;
  struct Backward {
    View<T, 2> dx;
    View<const T, 2> dy, x;
    View<const T, 2> add = {};  // dx = dy W + add; may be dx
  };
  // dW += dy^T x, then dx.
  void backward(Exec on, const QuantScratch& q, const Backward& a) const;

  QuantisedProducts* quantised() const { return products_.quantised(); }

 private:
  void decoded_wgrad(Exec on, const QuantScratch& q, const GradientOperands<T>& dy,
                     const Backward& a) const;
  void decoded_dgrad(Exec on, const QuantScratch& q, const GradientOperands<T>& dy,
                     const Backward& a) const;
  void native_backward(Exec on, const QuantScratch& q, const NativeProducts& native,
                       const Backward& a) const;

  WeightProducts<T, WeightMatrix<T>> products_;
  View<float, 2> dweight_;
};

// The two products of the experts' FFN around its activation.
template <typename T>
class ExpertProjections {
 public:
  // NAME.gate_up (E, 2F, C) and NAME.down (E, C, F).
  ExpertProjections(const std::string& name, const ProjectionSite& site)
      : gate_up_(name + ".gate_up", site), down_(name + ".down", site) {}

  void bind(const ParameterStore<T>& store);
  struct Forward {
    View<T, 2> y, gate_up, h;  // (A, C), (A, 2F), (A, F)
    View<const T, 2> x;        // (N, C)
  };
  void forward(Exec on, const QuantScratch& q, const AssignedRows& rows, const Forward& a) const;
  struct Backward {
    View<T, 2> dx;            // (A, C)   of each assignment
    View<T, 2> dgate_up, dh;  // (A, 2F), (A, F)   scratch
    View<const T, 2> dy, x, gate_up, h;
  };
  void backward(Exec on, const QuantScratch& q, const AssignedRows& rows, const Backward& a) const;

  QuantisedProducts* gate_up_quantised() const { return gate_up_.quantised(); }
  QuantisedProducts* down_quantised() const { return down_.quantised(); }

 private:
  WeightProducts<T, WeightStack<T>> gate_up_, down_;
  View<float, 3> dgate_up_, ddown_;
};

}  // namespace assay
