// The SIMT emulator as a GPU: kernels run on the CPU, with the emulator's device memory
// (cuda/simt/memory.h). For tests of whole steps.
#pragma once

#include <chrono>

#include "cuda/context.h"

namespace assay::simt {

// A GPU of that compute capability: its limits, and wrappers for what it lacks fail.
gpu::Context make_context(int capability = 90);

// The clock that events read is later by that much from now on, as if work had taken so long: for
// tests of what measures times.
void advance_clock(std::chrono::nanoseconds by);

}  // namespace assay::simt
