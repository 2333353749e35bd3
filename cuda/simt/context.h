// A GPU made of the executor: kernels run on the CPU, memory is the executor's
// (cuda/simt/memory.h). For tests of whole steps.
#pragma once

#include "cuda/context.h"

namespace assay::simt {

gpu::Context make_context();

}  // namespace assay::simt
