// The body that an op has on a GPU in a build without CUDA: it refuses with a user error.
//
//   namespace gpu {
//   ASSAY_GPU_ABSENT(rmsnorm_forward, RmsNormForward<float>)
//   }  // namespace gpu
//
// One line per overload at the end of the op's .cpp. The definition is weak: the one in the op's
// .cu replaces it in programs that link assay_ops_gpu or assay_ops_simt. Both are object libraries,
// so the linker sees every strong definition; out of an archive it would not take one for a name
// that already has a weak definition.
#pragma once

#include "base/check.h"

namespace assay::gpu {

[[noreturn]] inline void refuse_absent(const char* op) {
  throw UserError(strprintf("%s: this build has no CUDA kernel for it", op),
                  "run on the CPU (--device cpu), or build where CMake finds the CUDA toolkit");
}

}  // namespace assay::gpu

#define ASSAY_GPU_ABSENT(op, ...)                   \
  [[gnu::weak]] void op(Exec, const __VA_ARGS__&) { \
    refuse_absent(#op);                             \
  }
