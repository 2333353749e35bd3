// Bulk copies between global and shared memory, issued by one thread: tiles of a tensor map (TMA),
// or contiguous bytes.
//
// Coordinates count elements, innermost first. The innermost one is at a multiple of 16 bytes: else
// the hardware ends the kernel with an illegal instruction (seen on an H200). A load fills its
// whole box: elements outside the tensor become zero, and the mbarrier counts the bytes of the
// whole box. A store writes only the elements inside the tensor. Shared tiles are aligned to 128
// bytes (1024 with a 128-byte swizzle). Maps are made on the host by make_tensor_map
// (cuda/tensor_map.h) and passed to the kernel as `const __grid_constant__ TensorMap`.
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

GPU_DEVICE void tma_load(void* shared, const TensorMap* map, Mbarrier* barrier, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4}], "
      "[%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y)
      : "memory");
}
GPU_DEVICE void tma_load(void* shared, const TensorMap* map, Mbarrier* barrier, int x, int y,
                         int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4, %5}], "
      "[%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
GPU_DEVICE void tma_load(void* shared, const TensorMap* map, Mbarrier* barrier, int x, int y, int z,
                         int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
GPU_DEVICE void tma_load(void* shared, const TensorMap* map, Mbarrier* barrier, int x, int y, int z,
                         int w, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], "
      "[%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(shared)),
      "l"(map), "r"(shared_address(barrier)), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}
// `bytes` and both addresses are multiples of 16.
GPU_DEVICE void bulk_load(void* shared, const void* global, int bytes, Mbarrier* barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
}

// Before a store: fence_proxy_async() by the writing threads, then a barrier, then one thread
// stores and commits. The shared tile may be written again after bulk_wait_read; the data are in
// global memory after bulk_wait. Pending: the number of groups that may still be in flight.
GPU_DEVICE void tma_store(const TensorMap* map, const void* shared, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(shared_address(shared)), "r"(x), "r"(y)
      : "memory");
}
GPU_DEVICE void tma_store(const TensorMap* map, const void* shared, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(
          map),
      "r"(shared_address(shared)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
GPU_DEVICE void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}
template <int Pending>
GPU_DEVICE void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(Pending) : "memory");
}
template <int Pending>
GPU_DEVICE void bulk_wait() {
  asm volatile("cp.async.bulk.wait_group %0;" ::"n"(Pending) : "memory");
}

#else

GPU_DEVICE void tma_load(void* shared, const TensorMap* map, Mbarrier* barrier, int x, int y,
                         simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::tma_load(shared, *map, &barrier->state, {x, y, 0, 0, 0}, 2, here);
}
GPU_DEVICE void tma_load(void* shared, const TensorMap* map, Mbarrier* barrier, int x, int y, int z,
                         simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::tma_load(shared, *map, &barrier->state, {x, y, z, 0, 0}, 3, here);
}
GPU_DEVICE void tma_load(void* shared, const TensorMap* map, Mbarrier* barrier, int x, int y, int z,
                         int w, simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::tma_load(shared, *map, &barrier->state, {x, y, z, w, 0}, 4, here);
}
GPU_DEVICE void tma_load(void* shared, const TensorMap* map, Mbarrier* barrier, int x, int y, int z,
                         int w, int v, simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::tma_load(shared, *map, &barrier->state, {x, y, z, w, v}, 5, here);
}
GPU_DEVICE void bulk_load(void* shared, const void* global, int bytes, Mbarrier* barrier,
                          simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::bulk_load(shared, global, bytes, &barrier->state, here);
}
GPU_DEVICE void tma_store(const TensorMap* map, const void* shared, int x, int y,
                          simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::tma_store(*map, shared, {x, y, 0, 0, 0}, 2, here);
}
GPU_DEVICE void tma_store(const TensorMap* map, const void* shared, int x, int y, int z,
                          simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::tma_store(*map, shared, {x, y, z, 0, 0}, 3, here);
}
using simt::bulk_commit;
using simt::bulk_wait;
using simt::bulk_wait_read;

#endif

}  // namespace assay::gpu
