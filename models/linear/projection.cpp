#include "models/linear/projection.h"

#include <type_traits>

#include "base/bf16.h"
#include "base/check.h"
#include "ops/grouped_linear.h"
#include "ops/grouped_scaled.h"
#include "ops/grouped_swiglu.h"
#include "ops/linear.h"
#include "ops/swiglu.h"

namespace assay {

template <typename T, typename Weight>
WeightProducts<T, Weight>::WeightProducts(const ProductSite& site) : name_(site.weight) {
  if (!std::is_same_v<T, bf16> || !site.formats.any()) return;
  quantised_ = std::make_unique<QuantisedProducts>(site);
}

template <typename T, typename Weight>
void WeightProducts<T, Weight>::bind(const ParameterStore<T>& store) {
  if (quantised_) return;
  if constexpr (std::is_same_v<Weight, WeightStack<T>>) {
    plain_ = store.stack(name_);
  } else {
    plain_ = store.matrix(name_);
  }
}

template <typename T, typename Weight>
ProductOperand<T> WeightProducts<T, Weight>::input(Exec on, const QuantPass& q, View<const T, 2> x,
                                                   View<const float, 1> amax) const {
  if constexpr (std::is_same_v<T, bf16>) {
    if (quantised_) return quantised_->fprop_input(on, q, x, amax);
  }
  return {.values = x};
}

template <typename T, typename Weight>
GradientOperands<T> WeightProducts<T, Weight>::gradient(Exec on, const QuantPass& q,
                                                        View<const T, 2> dy,
                                                        const AssignedRows& rows,
                                                        View<const float, 1> amax) const {
  if constexpr (std::is_same_v<T, bf16>) {
    if (quantised_) return quantised_->gradient(on, q, dy, rows, amax);
  }
  return {.row = {.values = dy}, .column = {.values = dy}};
}

template <typename T, typename Weight>
ProductOperand<T> WeightProducts<T, Weight>::wgrad_input(Exec on, const QuantPass& q,
                                                         View<const T, 2> x,
                                                         const AssignedRows& rows,
                                                         View<const float, 1> amax) const {
  if constexpr (std::is_same_v<T, bf16>) {
    if (quantised_) return quantised_->wgrad_input(on, q, x, rows, amax);
  }
  return {.values = x};
}

template <typename T, typename Weight>
Weight WeightProducts<T, Weight>::fprop_weight() const {
  if constexpr (std::is_same_v<Weight, WeightMatrix<bf16>>) {
    if (quantised_) return quantised_->weights().fprop_matrix();
  }
  if constexpr (std::is_same_v<Weight, WeightStack<bf16>>) {
    if (quantised_) return quantised_->weights().fprop_stack();
  }
  return plain_;
}

template <typename T, typename Weight>
Weight WeightProducts<T, Weight>::dgrad_weight() const {
  if constexpr (std::is_same_v<Weight, WeightMatrix<bf16>>) {
    if (quantised_) return quantised_->weights().dgrad_matrix();
  }
  if constexpr (std::is_same_v<Weight, WeightStack<bf16>>) {
    if (quantised_) return quantised_->weights().dgrad_stack();
  }
  return plain_;
}

template <typename T, typename Weight>
ProductScale WeightProducts<T, Weight>::fprop_scale(const QuantPass& q,
                                                    const ProductOperand<T>& input) const {
  return {input.scale, quantised_ ? quantised_->fprop_weight_scale(q) : View<const float, 1>{}};
}

template <typename T, typename Weight>
ProductScale WeightProducts<T, Weight>::dgrad_scale(const QuantPass& q,
                                                    const ProductOperand<T>& gradient) const {
  return {gradient.scale, quantised_ ? quantised_->dgrad_weight_scale(q) : View<const float, 1>{}};
}

template <typename T>
void Projection<T>::bind(const ParameterStore<T>& store) {
  products_.bind(store);
  dweight_ = store.matrix_gradient(products_.name());
}

template <typename T>
void Projection<T>::forward(Exec on, const QuantPass& q, View<const T, 2> x, View<T, 2> y,
                            View<const float, 1> x_amax) const {
  if constexpr (std::is_same_v<T, bf16>) {
    const NativeProducts* const native = products_.native();
    if (native != nullptr && native->fprop(q)) {
      if (q.state.sampled()) products_.input(on, q, x, x_amax);  // for the measures only
      return native->forward(on, q, x, y, x_amax);
    }
  }
  const ProductOperand<T> input = products_.input(on, q, x, x_amax);
  linear_forward<T>(on, {.y = y,
                         .x = input.values,
                         .weight = products_.fprop_weight(),
                         .scale = products_.fprop_scale(q, input)});
}

template <typename T>
void Projection<T>::forward_onto(Exec on, View<const T, 2> x, View<const T, 2> resid, float gain,
                                 View<T, 2> y) const {
  CHECK(products_.quantised() == nullptr && y.data != resid.data, "%s: onto a stream",
        products_.name().c_str());
  linear_forward<T>(
      on,
      {.y = y, .x = x, .weight = products_.fprop_weight(), .add = resid, .scale = {.gain = gain}});
}

template <typename T>
bool Projection<T>::takes_gain(Exec on) const {
  return on.gpu != nullptr && products_.quantised() == nullptr;
}

template <typename T>
void Projection<T>::backward(Exec on, const QuantPass& q, const Backward& a) const {
  CHECK(a.dy_gain == 1.0f || takes_gain(on), "%s: gain %g of the gradient",
        products_.name().c_str(), double(a.dy_gain));
  if constexpr (std::is_same_v<T, bf16>) {
    const NativeProducts* const native = products_.native();
    if (native != nullptr && (native->dgrad(q) || native->wgrad(q))) {
      return native_backward(on, q, *native, a);
    }
  }
  const GradientOperands<T> dy = products_.gradient(on, q, a.dy, {}, a.dy_amax);
  decoded_wgrad(on, q, dy, a);
  decoded_dgrad(on, q, dy, a);
}

template <typename T>
void Projection<T>::backward_to_gate_up(Exec on, const QuantPass& q,
                                        const SwigluBackward& a) const {
  const Backward product{
      .dx = a.dx, .dy = a.dy, .x = a.x, .dy_amax = a.dy_amax, .x_amax = a.x_amax};
  // A quantised projection has the same bits in native and simulated products: two kernels in both.
  if (std::is_same_v<T, bf16> && products_.quantised() == nullptr &&
      grouped_swiglu_dgrad_pays(on, a.dy.dim[1], a.dx.dim[1])) {
    const GradientOperands<T> dy = products_.gradient(on, q, a.dy, {}, a.dy_amax);
    decoded_wgrad(on, q, dy, product);
    const View<const T, 2> weight = products_.dgrad_weight().plain;
    return grouped_swiglu_dgrad<T>(
        on, {.dgate_up = a.dgate_up,
             .amax = a.dgate_up_amax,
             .dh = a.dx,
             .dy = dy.row.values,
             .gate_up = a.gate_up,
             .offsets = {},
             .weight = {.plain = {weight.data, {1, weight.dim[0], weight.dim[1]}}, .packed = {}},
             .scale = products_.dgrad_scale(q, dy.row)});
  }
  backward(on, q, product);
  swiglu_backward<T>(
      on, {.dgate_up = a.dgate_up, .amax = a.dgate_up_amax, .dh = a.dx, .gate_up = a.gate_up});
}

template <typename T>
void Projection<T>::decoded_wgrad(Exec on, const QuantPass& q, const GradientOperands<T>& dy,
                                  const Backward& a) const {
  const ProductOperand<T> x = products_.wgrad_input(on, q, a.x, {}, a.x_amax);
  linear_wgrad<T>(on, {.dweight = dweight_,
                       .dy = dy.column.values,
                       .x = x.values,
                       .scale = {dy.column.scale, x.scale, a.dy_gain},
                       .sum = products_.gradient_sum(q)});
}

template <typename T>
void Projection<T>::decoded_dgrad(Exec on, const QuantPass& q, const GradientOperands<T>& dy,
                                  const Backward& a) const {
  ProductScale scale = products_.dgrad_scale(q, dy.row);
  scale.gain = a.dy_gain;
  linear_dgrad<T>(on, {.dx = a.dx,
                       .dy = dy.row.values,
                       .weight = products_.dgrad_weight(),
                       .add = a.add,
                       .scale = scale});
}

template <typename T>
void Projection<T>::native_backward(Exec on, const QuantPass& q, const NativeProducts& native,
                                    const Backward& a) const {
  if constexpr (std::is_same_v<T, bf16>) {
    const GradientOperands<T> dy = products_.gradient(on, q, a.dy, {}, a.dy_amax);
    native.code_gradient(on, q, a.dy, a.dy_amax);
    if (native.wgrad(q)) {
      if (q.state.sampled())
        products_.wgrad_input(on, q, a.x, {}, a.x_amax);  // for the measures only
      native.wgrad(on, q, a.x, dweight_, a.x_amax);
    } else {
      decoded_wgrad(on, q, dy, a);
    }
    native.dgrad(q) ? native.dgrad(on, q, a.dx, a.add) : decoded_dgrad(on, q, dy, a);
  }
}

template <typename T>
void ExpertProjections<T>::bind(const ParameterStore<T>& store) {
  gate_up_.bind(store);
  down_.bind(store);
  dgate_up_ = store.stack_gradient(gate_up_.name());
  ddown_ = store.stack_gradient(down_.name());
}

// In sampled steps native products also make the decoded operand, for its measures.
template <typename T>
void ExpertProjections<T>::forward(Exec on, const QuantPass& q, const AssignedRows& rows,
                                   const Forward& a) const {
  gate_up_forward(on, q, rows, a);
  down_forward(on, q, rows, a);
}

template <typename T>
void ExpertProjections<T>::gate_up_forward(Exec on, const QuantPass& q, const AssignedRows& rows,
                                           const Forward& a) const {
  if constexpr (std::is_same_v<T, bf16>) {
    const NativeProducts* const native = gate_up_.native();
    if (native != nullptr && native->fprop(q)) {
      if (q.state.sampled()) gate_up_.input(on, q, a.x, a.amax.x);
      return grouped_scaled_swiglu_forward(on, {.h = a.h,
                                                .gate_up = a.gate_up,
                                                .amax = a.amax.h,
                                                .x = native->code_input(on, q, a.x, a.amax.x),
                                                .row = rows.gather,
                                                .offsets = rows.offsets,
                                                .weight = native->fprop_stack()});
    }
  }
  const ProductOperand<T> x = gate_up_.input(on, q, a.x, a.amax.x);
  grouped_swiglu_forward<T>(on, {.h = a.h,
                                 .gate_up = a.gate_up,
                                 .amax = a.amax.h,
                                 .x = x.values,
                                 .row = rows.gather,
                                 .offsets = rows.offsets,
                                 .weight = gate_up_.fprop_weight(),
                                 .scale = gate_up_.fprop_scale(q, x)});
}

template <typename T>
void ExpertProjections<T>::down_forward(Exec on, const QuantPass& q, const AssignedRows& rows,
                                        const Forward& a) const {
  if constexpr (std::is_same_v<T, bf16>) {
    const NativeProducts* const native = down_.native();
    if (native != nullptr && native->fprop(q)) {
      if (q.state.sampled()) down_.input(on, q, a.h, a.amax.h);
      return grouped_scaled_linear(on, {.y = a.y,
                                        .x = native->code_input(on, q, a.h, a.amax.h),
                                        .offsets = rows.offsets,
                                        .weight = native->fprop_stack()});
    }
  }
  const ProductOperand<T> h = down_.input(on, q, a.h, a.amax.h);
  grouped_linear_forward<T>(on, {.y = a.y,
                                 .x = h.values,
                                 .offsets = rows.offsets,
                                 .weight = down_.fprop_weight(),
                                 .scale = down_.fprop_scale(q, h)});
}

template <typename T>
void ExpertProjections<T>::backward(Exec on, const QuantPass& q, const AssignedRows& rows,
                                    const Backward& a) const {
  down_backward(on, q, rows, a);
  gate_up_backward(on, q, rows, a);
}

template <typename T>
void ExpertProjections<T>::down_backward(Exec on, const QuantPass& q, const AssignedRows& rows,
                                         const Backward& a) const {
  const AssignedRows sorted{.offsets = rows.offsets};
  const GradientOperands<T> dy = down_.gradient(on, q, a.dy, sorted, a.amax.dy);
  const ProductOperand<T> h = down_.wgrad_input(on, q, a.h, sorted, a.amax.h);
  const bool own = a.ddown_weight.empty();
  grouped_linear_wgrad<T>(on, {.dweight = own ? ddown_ : a.ddown_weight,
                               .dy = dy.column.values,
                               .x = h.values,
                               .offsets = rows.offsets,
                               .scale = {dy.column.scale, h.scale},
                               .sum = own ? down_.gradient_sum(q) : GradientSum::kAdd});
  if constexpr (std::is_same_v<T, bf16>) {
    const NativeProducts* const native = down_.native();
    if (native != nullptr && native->dgrad(q)) {
      native->code_gradient(on, q, a.dy, a.amax.dy);
      return grouped_scaled_swiglu_dgrad(on, {.dgate_up = a.dgate_up,
                                              .amax = a.amax.dgate_up,
                                              .dy = native->coded_gradient(q, a.dy.dim[0]),
                                              .gate_up = a.gate_up,
                                              .offsets = rows.offsets,
                                              .weight = native->dgrad_stack()});
    }
  }
  grouped_swiglu_dgrad<T>(on, {.dgate_up = a.dgate_up,
                               .amax = a.amax.dgate_up,
                               .dh = a.dh,
                               .dy = dy.row.values,
                               .gate_up = a.gate_up,
                               .offsets = rows.offsets,
                               .weight = down_.dgrad_weight(),
                               .scale = down_.dgrad_scale(q, dy.row)});
}

template <typename T>
void ExpertProjections<T>::gate_up_backward(Exec on, const QuantPass& q, const AssignedRows& rows,
                                            const Backward& a) const {
  const GradientOperands<T> inner =
      gate_up_.gradient(on, q, a.dgate_up, {.offsets = rows.offsets}, a.amax.dgate_up);
  const ProductOperand<T> x = gate_up_.wgrad_input(on, q, a.x, rows, a.amax.x);
  const bool own = a.dgate_up_weight.empty();
  grouped_linear_wgrad<T>(on, {.dweight = own ? dgate_up_ : a.dgate_up_weight,
                               .dy = inner.column.values,
                               .x = x.values,
                               .row = x.gathered ? View<const int32_t, 1>{} : rows.gather,
                               .offsets = rows.offsets,
                               .scale = {inner.column.scale, x.scale},
                               .sum = own ? gate_up_.gradient_sum(q) : GradientSum::kAdd});
  if constexpr (std::is_same_v<T, bf16>) {
    const NativeProducts* const native = gate_up_.native();
    if (native != nullptr && native->dgrad(q)) {
      native->code_gradient(on, q, a.dgate_up, a.amax.dgate_up);
      return grouped_scaled_linear(on, {.y = a.dx,
                                        .x = native->coded_gradient(q, a.dx.dim[0]),
                                        .offsets = rows.offsets,
                                        .weight = native->dgrad_stack()});
    }
  }
  grouped_linear_dgrad<T>(on, {.dx = a.dx,
                               .dy = inner.row.values,
                               .offsets = rows.offsets,
                               .weight = gate_up_.dgrad_weight(),
                               .scale = gate_up_.dgrad_scale(q, inner.row)});
}

FfnAmax ffn_amax_slots(const QuantisedProducts* gate_up, const QuantisedProducts* down,
                       const QuantPass& q, const FfnAmax& words) {
  return {.x = input_amax_slot(gate_up, q, words.x),
          .h = input_amax_slot(down, q, words.h),
          .dy = gradient_amax_slot(down, q, words.dy),
          .dgate_up = gradient_amax_slot(gate_up, q, words.dgate_up)};
}

template class WeightProducts<float, WeightMatrix<float>>;
template class WeightProducts<float, WeightStack<float>>;
template class WeightProducts<bf16, WeightMatrix<bf16>>;
template class WeightProducts<bf16, WeightStack<bf16>>;
template class Projection<float>;
template class Projection<bf16>;
template class ExpertProjections<float>;
template class ExpertProjections<bf16>;

}  // namespace assay
