// The experts' products of 8-bit codes on tensor cores, by wgmma and by mma.sync.
#pragma once

#include "ops/grouped_scaled.h"

namespace assay::gpu {

void grouped_scaled_linear_wgmma(Exec on, const GroupedScaledLinear& a);
void grouped_scaled_swiglu_forward_wgmma(Exec on, const GroupedScaledSwigluForward& a);
void grouped_scaled_swiglu_dgrad_wgmma(Exec on, const GroupedScaledSwigluDgrad& a);

void grouped_scaled_linear_mma(Exec on, const GroupedScaledLinear& a);
void grouped_scaled_swiglu_forward_mma(Exec on, const GroupedScaledSwigluForward& a);
void grouped_scaled_swiglu_dgrad_mma(Exec on, const GroupedScaledSwigluDgrad& a);

}  // namespace assay::gpu
