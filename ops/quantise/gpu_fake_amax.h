// The pass of fake_quantise that finds the amax of z and of z rotated, on the GPU.
#pragma once

#include "ops/fake_quantise.h"

namespace assay::gpu::fake {

// Writes a.amax.
template <typename X>
void find_amax(Exec on, const FakeQuantise<X>& a);

}  // namespace assay::gpu::fake
