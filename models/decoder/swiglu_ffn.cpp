#include "models/decoder/swiglu_ffn.h"

#include <type_traits>

#include "base/bf16.h"
#include "ops/swiglu.h"

namespace assay {

template <typename T>
void SwigluFfn<T>::plan(MemoryPlan& plan, int64_t ffn, int64_t tokens) {
  plan.add(Section::kActivations, name + ".gate_up", gate_up, {tokens, 2 * ffn});
  plan.add(Section::kActivations, name + ".h", h, {tokens, ffn});
}

template <typename T>
void SwigluFfn<T>::bind(const ParameterStore<T>& store) {
  gate_up_weight.bind(store);
  down_weight.bind(store);
}

template <typename T>
void SwigluFfn<T>::forward(Exec on, const QuantPass& q, View<const T, 2> x, View<T, 2> y,
                           const FfnAmax& amax, View<const T, 2> resid) const {
  const int64_t n = x.dim[0];
  gate_up_weight.forward(on, q, x, gate_up.rows(0, n), amax.x);
  if constexpr (std::is_same_v<T, bf16>) {
    const NativeSwiglu native = native_swiglu();
    if (native.in_force(q, h.dim[1])) return native.forward(on, q, gate_up.rows(0, n), y);
  }
  swiglu_forward<T>(on, {.h = h.rows(0, n), .amax = amax.h, .gate_up = gate_up.rows(0, n)});
  if (!resid.empty()) return down_weight.forward_onto(on, h.rows(0, n), resid, 1.0f, y);
  down_weight.forward(on, q, h.rows(0, n), y, amax.h);
}

template <typename T>
void SwigluFfn<T>::backward(Exec on, const QuantPass& q, const Backward& a) const {
  const int64_t n = a.x.dim[0];
  const View<T, 2> dh{a.dh.data, {n, h.dim[1]}};
  if constexpr (std::is_same_v<T, bf16>) {
    const NativeSwiglu native = native_swiglu();
    if (native.in_force(q, h.dim[1])) {
      return native.backward(on, q,
                             {.dx = a.dx,
                              .dh = dh,
                              .dgate_up_weight = gate_up_weight.dweight(),
                              .ddown_weight = down_weight.dweight(),
                              .dy = a.dy,
                              .x = a.x,
                              .gate_up = gate_up.rows(0, n),
                              .add = a.add});
    }
  }
  const View<T, 2> dgate_up{a.dgate_up.data, {n, gate_up.dim[1]}};
  down_weight.backward_to_gate_up(on, q,
                                  {.dgate_up = dgate_up,
                                   .dx = dh,
                                   .dy = a.dy,
                                   .x = h.rows(0, n),
                                   .gate_up = gate_up.rows(0, n),
                                   .dy_amax = a.amax.dy,
                                   .x_amax = a.amax.h,
                                   .dgate_up_amax = a.amax.dgate_up});
  gate_up_weight.backward(on, q,
                          {.dx = a.dx,
                           .dy = dgate_up,
                           .x = a.x,
                           .dy_amax = a.amax.dgate_up,
                           .x_amax = a.amax.x,
                           .add = a.add});
}

template struct SwigluFfn<float>;
template struct SwigluFfn<bf16>;

}  // namespace assay
