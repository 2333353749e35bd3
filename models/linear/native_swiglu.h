// An FFN whose products read codes with one scale per 128 elements of a line: h and the gradient of
// gate and up are written as codes where they are computed (ops/swiglu_codes.h), never in bf16.
// Same bits as product, SwiGLU and quantiser run one after another.
#pragma once

#include "models/linear/native_products.h"

namespace assay {

class NativeSwiglu {
 public:
  // The products of (2F, C) and (C, F); null if that weight has no native product.
  NativeSwiglu(const NativeProducts* gate_up, const NativeProducts* down)
      : gate_up_(gate_up), down_(down) {}

  // True if this path is used; width: F. Has the same value in both passes of a micro-batch, since
  // backward finds no h in bf16 if forward wrote none. False in sampled steps, which measure the
  // bf16 values.
  bool in_force(const QuantPass& q, int64_t width) const;

  // y = swiglu(gate_up) Wdown^T; gate_up (N, 2F), y (N, C).
  void forward(Exec on, const QuantPass& q, View<const bf16, 2> gate_up, View<bf16, 2> y) const;
  struct Backward {
    View<bf16, 2> dx;                              // dgate_up W + add
    View<bf16, 2> dh;                              // scratch
    View<float, 2> dgate_up_weight, ddown_weight;  // accumulated
    View<const bf16, 2> dy, x, gate_up;
    View<const bf16, 2> add = {};  // may be dx
  };
  void backward(Exec on, const QuantPass& q, const Backward& a) const;

 private:
  const NativeProducts *gate_up_, *down_;
};

}  // namespace assay
