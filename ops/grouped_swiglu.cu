#include "cuda/context.h"
#include "ops/grouped/gpu_tensor.h"
#include "ops/grouped_linear.h"
#include "ops/grouped_swiglu.h"
#include "ops/swiglu.h"

namespace assay::gpu {

void grouped_swiglu_forward(Exec on, const GroupedSwigluForward<float>& a) {
  grouped_linear_forward(on, {.y = a.gate_up,
                              .x = a.x,
                              .row = a.row,
                              .offsets = a.offsets,
                              .weight = a.weight,
                              .scale = a.scale});
  swiglu_forward(on, {.h = a.h, .amax = a.amax, .gate_up = a.gate_up});
}

void grouped_swiglu_forward(Exec on, const GroupedSwigluForward<bf16>& a) {
  if (a.h.size() == 0) return;
  if (whole_pieces({a.h.data, a.gate_up.data, a.x.data, a.weight.plain.data}, a.h.dim[1],
                   a.x.dim[1])) {
    const bool by_wgmma = on.gpu->kind.products == Products::kWgmma;
    return by_wgmma ? grouped_swiglu_forward_wgmma(on, a) : grouped_swiglu_forward_mma(on, a);
  }
  grouped_linear_forward(on, GroupedForward<bf16>{.y = a.gate_up,
                                                  .x = a.x,
                                                  .row = a.row,
                                                  .offsets = a.offsets,
                                                  .weight = a.weight,
                                                  .scale = a.scale});
  swiglu_forward(on, SwigluForward<bf16>{.h = a.h, .amax = a.amax, .gate_up = a.gate_up});
}

void grouped_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<float>& a) {
  grouped_linear_dgrad(
      on, {.dx = a.dh, .dy = a.dy, .offsets = a.offsets, .weight = a.weight, .scale = a.scale});
  swiglu_backward(on, {.dgate_up = a.dgate_up, .amax = a.amax, .dh = a.dh, .gate_up = a.gate_up});
}

void grouped_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<bf16>& a) {
  if (a.gate_up.size() == 0) return;
  if (whole_pieces({a.dgate_up.data, a.gate_up.data, a.dy.data, a.weight.plain.data}, a.dy.dim[1],
                   a.weight.plain.dim[2])) {
    const bool by_wgmma = on.gpu->kind.products == Products::kWgmma;
    return by_wgmma ? grouped_swiglu_dgrad_wgmma(on, a) : grouped_swiglu_dgrad_mma(on, a);
  }
  grouped_linear_dgrad(
      on, GroupedDgrad<bf16>{
              .dx = a.dh, .dy = a.dy, .offsets = a.offsets, .weight = a.weight, .scale = a.scale});
  swiglu_backward(on,
                  SwigluBackward<bf16>{
                      .dgate_up = a.dgate_up, .amax = a.amax, .dh = a.dh, .gate_up = a.gate_up});
}

}  // namespace assay::gpu
