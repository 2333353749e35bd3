// The SIMT emulator as a GPU: kernels run on the CPU, with the emulator's device memory
// (cuda/simt/memory.h). For tests of whole steps.
#pragma once

#include "cuda/context.h"

namespace assay::simt {

gpu::Context make_context();

}  // namespace assay::simt
