// One SwiGLU FFN, a dense block's or the shared expert: y = swiglu(x Wgate_up^T) Wdown^T. The inner
// activations are stored as T between products, or as codes if the products that read them are
// native (models/linear/native_swiglu.h).
#pragma once

#include <string>
#include <vector>

#include "models/linear/native_swiglu.h"
#include "models/linear/projection.h"
#include "models/parameters/store.h"

namespace assay {

template <typename T>
struct SwigluFfn {
  std::string name;
  Projection<T> gate_up_weight, down_weight;  // (2F, C), (C, F)
  View<T, 2> gate_up, h;                      // (N, 2F), (N, F)

  // site.weight: NAME. The weights are NAME.gate_up and NAME.down.
  explicit SwigluFfn(const ProductSite& site)
      : name(site.weight),
        gate_up_weight(site.named(name + ".gate_up")),
        down_weight(site.named(name + ".down")) {}

  void plan(MemoryPlan& plan, int64_t ffn, int64_t tokens);
  void bind(const ParameterStore<T>& store);
  // x, y: (N, C); amax: the result of amax_slots(). With resid (N, C), which takes products that
  // are not quantised, y = resid + FFN(x).
  void forward(Exec on, const QuantPass& q, View<const T, 2> x, View<T, 2> y, const FfnAmax& amax,
               View<const T, 2> resid = {}) const;
  struct Backward {
    View<T, 2> dx;
    View<T, 1> dh, dgate_up;  // scratch, at least N F and 2 N F elements
    View<const T, 2> x, dy;
    FfnAmax amax;
    View<const T, 2> add = {};  // dx = gradient of x + add; may be dx
  };
  void backward(Exec on, const QuantPass& q, const Backward& a) const;
  void name_stored(std::vector<std::string>& names) const {
    gate_up_weight.name_stored(names);
    down_weight.name_stored(names);
  }
  NativeSwiglu native_swiglu() const { return {gate_up_weight.native(), down_weight.native()}; }
  // The entries of `words` that products of this FFN need; the others are empty.
  FfnAmax amax_slots(const QuantPass& q, const FfnAmax& words) const {
    return ffn_amax_slots(gate_up_weight.quantised(), down_weight.quantised(), q, words);
  }
};

}  // namespace assay
