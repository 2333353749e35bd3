#include "cuda/context.h"
#include "ops/grouped/gpu_scaled.h"
#include "ops/grouped_scaled.h"

namespace assay::gpu {

namespace {

bool by_wgmma(Exec on) {
  return on.gpu->kind.products == Products::kWgmma;
}

}  // namespace

void grouped_scaled_linear(Exec on, const GroupedScaledLinear& a) {
  if (a.y.size() == 0) return;
  by_wgmma(on) ? grouped_scaled_linear_wgmma(on, a) : grouped_scaled_linear_mma(on, a);
}

void grouped_scaled_swiglu_forward(Exec on, const GroupedScaledSwigluForward& a) {
  if (a.h.size() == 0) return;
  by_wgmma(on) ? grouped_scaled_swiglu_forward_wgmma(on, a)
               : grouped_scaled_swiglu_forward_mma(on, a);
}

void grouped_scaled_swiglu_dgrad(Exec on, const GroupedScaledSwigluDgrad& a) {
  if (a.gate_up.size() == 0) return;
  by_wgmma(on) ? grouped_scaled_swiglu_dgrad_wgmma(on, a) : grouped_scaled_swiglu_dgrad_mma(on, a);
}

}  // namespace assay::gpu
