#include <map>
#include <mutex>

#include "base/check.h"
#include "cuda/cuda_error.h"
#include "cuda/launch_kernel.h"
#include "cuda/recent_kernels.h"
#include "cuda/transfer.h"

namespace assay::gpu {

namespace {

// Raises the kernel's limit of dynamic shared memory, once per kernel and again for a larger
// launch. The default limit of 48 KiB includes the kernel's static shared memory, so it is always
// raised.
void allow_shared_bytes(const Launch& how, const void* kernel, const Context& on) {
  if (how.shared_bytes == 0) return;
  CHECK(how.shared_bytes <= on.kind.shared_bytes,
        "%s: %ld bytes of shared memory, at most %ld per block", how.name, long(how.shared_bytes),
        long(on.kind.shared_bytes));
  static std::mutex mutex;
  static std::map<const void*, int64_t> allowed;
  const std::lock_guard lock(mutex);
  int64_t& bytes = allowed[kernel];
  if (bytes >= how.shared_bytes) return;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  int(how.shared_bytes)),
             strprintf("giving %s %ld bytes of shared memory", how.name, long(how.shared_bytes)));
  bytes = how.shared_bytes;
}

dim3 extent(const Extent& e) {
  return dim3(e.x, e.y, e.z);
}

}  // namespace

void launch_kernel(Exec on, const Launch& how, const void* kernel, void** arguments) {
  CHECK(on.gpu != nullptr && on.gpu->stream != nullptr, "%s: launched without a stream", how.name);
  const auto stream = static_cast<cudaStream_t>(on.gpu->stream);
  CHECK(how.cluster == 1 || (on.gpu->kind.clusters && how.grid.x % how.cluster == 0),
        "%s: clusters of %u blocks, of %u along x", how.name, how.cluster, how.grid.x);
  allow_shared_bytes(how, kernel, *on.gpu);
  cudaLaunchConfig_t config = {};
  config.gridDim = extent(how.grid);
  config.blockDim = extent(how.block);
  config.dynamicSmemBytes = size_t(how.shared_bytes);
  config.stream = stream;
  cudaLaunchAttribute cluster = {};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = how.cluster;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  if (how.cluster > 1) {
    config.attrs = &cluster;
    config.numAttrs = 1;
  }
  remember_kernel(how.name);
  cuda_check(
      cudaLaunchKernelExC(&config, kernel, arguments),
      strprintf("starting %s (grid %u x %u x %u, block %u x %u x %u, %ld bytes of shared memory)",
                how.name, how.grid.x, how.grid.y, how.grid.z, how.block.x, how.block.y, how.block.z,
                long(how.shared_bytes)));
  if (on.gpu->launches != Context::Launches::kWaiting) return;
  cudaStreamCaptureStatus capturing = cudaStreamCaptureStatusNone;
  cuda_check(cudaStreamIsCapturing(stream, &capturing), "querying whether a graph is recorded");
  if (capturing != cudaStreamCaptureStatusNone) return;
  wait_for_launch(on, how.name);
}

}  // namespace assay::gpu
