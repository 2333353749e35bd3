// Clusters: blocks that run at the same time on neighbouring multiprocessors (Launch::cluster in
// cuda/launch_kernel.h) and reach each other's shared memory. GPUs before 9.0 have none.
//
//   cluster_arrive, cluster_wait   A barrier of all threads of the cluster that have not exited, in
//                                  two steps, which the lanes of a warp take together: what came
//                                  before the arrival of any thread is visible after the wait.
//                                  sync_cluster: both.
//   mbarrier_arrive_cluster        Arrives at the barrier of the block `rank`, its own or another,
//                                  at the address that `barrier` has in this block.
//   tma_load_multicast             As tma_load, to the same address in each block whose bit is set
//                                  in `blocks`. Each block's barrier at the address of `barrier`
//                                  counts the bytes that land there.
//
// Before the first access to another block, its barriers must be initialised, and a block may not
// end while another one may still reach it: sync_cluster at the begin and at the end of a kernel.
//
// mbarrier_arrive_cluster hands over shared memory: what the thread and the tensor cores have read
// there may be overwritten by a bulk copy of a thread that has waited for the arrival. It does not
// make stores to device memory visible to other blocks, which the emulator takes for granted. (With
// .release.cluster it would, but nvcc then emits a MEMBAR of the whole GPU in front of it, and a
// wait with .acquire.cluster empties L1.)
#pragma once

#include <cstdint>

#include "cuda/kernel/async.h"
#include "cuda/kernel/language.h"
#include "cuda/tensor_map.h"
#if !defined(__CUDACC__)
#include "cuda/simt/device.h"
#endif

namespace assay::gpu {

#if defined(__CUDACC__)

// Number of this block in its cluster.
GPU_DEVICE int cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return int(rank);
}
GPU_DEVICE void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}
GPU_DEVICE void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}
GPU_DEVICE void mbarrier_arrive_cluster(Mbarrier* barrier, int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(rank)
      : "memory");
}
GPU_DEVICE void tma_load_multicast(void* shared, const TensorMap* map, Mbarrier* barrier,
                                   uint32_t blocks, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "h"(uint16_t(blocks))
      : "memory");
}
GPU_DEVICE void tma_load_multicast(void* shared, const TensorMap* map, Mbarrier* barrier,
                                   uint32_t blocks, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "h"(uint16_t(blocks))
      : "memory");
}

#else

using simt::cluster_arrive;
using simt::cluster_rank;
using simt::cluster_wait;

GPU_DEVICE void mbarrier_arrive_cluster(
    Mbarrier* barrier, int rank, simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::mbarrier_arrive_cluster(&barrier->state, rank, here);
}
GPU_DEVICE void tma_load_multicast(void* shared, const TensorMap* map, Mbarrier* barrier,
                                   uint32_t blocks, int x, int y,
                                   simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::tma_load_multicast(shared, *map, &barrier->state, blocks, {x, y, 0, 0, 0}, 2, here);
}
GPU_DEVICE void tma_load_multicast(void* shared, const TensorMap* map, Mbarrier* barrier,
                                   uint32_t blocks, int x, int y, int z,
                                   simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::tma_load_multicast(shared, *map, &barrier->state, blocks, {x, y, z, 0, 0}, 3, here);
}

#endif

#if defined(__CUDACC__)
GPU_DEVICE void sync_cluster() {
  cluster_arrive();
  cluster_wait();
}
#else
GPU_DEVICE void sync_cluster(simt::SourceLocation here = simt::SourceLocation::caller()) {
  cluster_arrive(here);
  cluster_wait(here);
}
#endif

}  // namespace assay::gpu
