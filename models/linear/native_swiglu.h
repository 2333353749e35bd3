// An FFN whose products read codes with a scale for each 128 of a line: h and the gradient of gate
// and up are written as codes where they are computed (ops/swiglu_codes.h), and never in bf16. The
// same bits as product, SwiGLU and quantiser one by one.
#pragma once

#include "models/linear/native_products.h"

namespace assay {

class NativeSwiglu {
 public:
  // The products of (2F, C) and (C, F); either null: some product is decoded.
  NativeSwiglu(const NativeProducts* gate_up, const NativeProducts* down)
      : gate_up_(gate_up), down_(down) {}

  // The same in both passes of a micro-batch: the backward pass finds no h in bf16 where the
  // forward pass wrote none. Not in sampled steps, which measure the bf16 numbers.
  bool in_force(const QuantScratch& q, int64_t width) const;

  // y = swiglu(gate_up) Wdown^T
  void forward(Exec on, const QuantScratch& q, View<const bf16, 2> gate_up, View<bf16, 2> y) const;
  struct Backward {
    View<bf16, 2> dx;                              // dgate_up W + add
    View<bf16, 2> dh;                              // scratch
    View<float, 2> dgate_up_weight, ddown_weight;  // are added to
    View<const bf16, 2> dy, x, gate_up;
    View<const bf16, 2> add = {};  // may be dx
  };
  void backward(Exec on, const QuantScratch& q, const Backward& a) const;

 private:
  const NativeProducts *gate_up_, *down_;
};

}  // namespace assay
