#include "models/linear/native_swiglu.h"

#include "ops/swiglu_codes.h"

namespace assay {

bool NativeSwiglu::in_force(const QuantPass& q, int64_t width) const {
  if (gate_up_ == nullptr || down_ == nullptr || q.state.sampled()) return false;
  if (!down_->fprop(q) || !down_->dgrad(q) || !down_->wgrad(q)) return false;
  if (!gate_up_->dgrad(q) || !gate_up_->wgrad(q)) return false;
  const ProductFormats &outer = gate_up_->formats(), &inner = down_->formats();
  const QuantFormat& format = inner.fprop_input.format;
  for (const OperandFormat* o :
       {&inner.wgrad_input, &inner.wgrad_gradient, &outer.dgrad_gradient, &outer.wgrad_gradient}) {
    if (o->rotated || !(o->format == format)) return false;
  }
  return swiglu_codes_problem(format, width).empty();
}

void NativeSwiglu::forward(Exec on, const QuantPass& q, View<const bf16, 2> gate_up,
                           View<bf16, 2> y) const {
  swiglu_codes_forward(on, {.h = down_->input_copy(q, y.dim[0]),
                            .not_finite = q.scratch.not_finite,
                            .gate_up = gate_up,
                            .format = down_->formats().fprop_input.format});
  down_->multiply_input(on, q, y);
}

// dh is computed before the weight gradient that reads h, so that one kernel writes the codes of h
// and of dgate_up.
void NativeSwiglu::backward(Exec on, const QuantPass& q, const Backward& a) const {
  const int64_t rows = a.dy.dim[0];
  down_->code_gradient(on, q, a.dy, {}, q.scratch.coded.kept);
  down_->dgrad(on, q, a.dh, {});
  swiglu_codes_backward(on, {.row = gate_up_->gradient_row(q, rows),
                             .column = gate_up_->gradient_column(q, rows),
                             .h_column = down_->wgrad_input_copy(q, rows),
                             .not_finite = q.scratch.not_finite,
                             .dh = a.dh,
                             .gate_up = a.gate_up,
                             .format = down_->formats().wgrad_input.format});
  down_->multiply_gradient(on, q, q.scratch.coded.kept, rows, a.ddown_weight);
  gate_up_->wgrad(on, q, a.x, a.dgate_up_weight, {});
  gate_up_->dgrad(on, q, a.dx, a.add);
}

}  // namespace assay
