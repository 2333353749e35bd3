// The only way to start a kernel: launch(on, {.name = ..., .grid = ..., .block = ...}, kernel,
// arguments...).
//
// Under nvcc it queues the kernel on the stream of on.gpu; under the host compiler, on that stream
// of the SIMT emulator (cuda/simt). The arguments are the kernel's parameters by value, usually one
// struct of the op.
#pragma once

#include <type_traits>

#include "cuda/launch_kernel.h"
#if !defined(__CUDACC__)
#include "cuda/simt/run_grid.h"
#include "cuda/simt/stream.h"
#endif

namespace assay::gpu {

template <typename... Parameters>
void launch(Exec on, const Launch& how, void (*kernel)(Parameters...),
            std::type_identity_t<Parameters>... arguments) {
  if (how.grid.x == 0 || how.grid.y == 0 || how.grid.z == 0) return;  // nothing to do, e.g. no rows
#if defined(__CUDACC__)
  void* pointers[] = {static_cast<void*>(&arguments)..., nullptr};
  launch_kernel(on, how, reinterpret_cast<const void*>(kernel), pointers);
#else
  simt::enqueue(simt::stream_of(on), [=, kind = simt::kind_of(on)] {
    simt::run_grid(
        how.name, {how.grid.x, how.grid.y, how.grid.z}, {how.block.x, how.block.y, how.block.z},
        static_cast<size_t>(how.shared_bytes), [&] { kernel(arguments...); }, kind, how.cluster);
  });
#endif
}

}  // namespace assay::gpu
