// Copies that land later and the barriers in shared memory that wait for them.
//
//   cp.async   16 bytes a thread; groups: cp_async_commit(), cp_async_wait<groups that may still be open>()
//   mbarrier   counts arrivals and, for bulk copies, bytes; a phase ends when both are there. A waiter gives the parity
//              of the phase it waits for: 0 for the first, then 1, 0, ...
//
// Addresses are pointers into shared memory; the wrappers make the 32-bit ones.
#pragma once

#include <cstdint>

#include "cuda/kernel/language.h"
#if !defined(__CUDACC__)
#include "cuda/simt/device.h"
#endif

namespace assay::gpu {

struct alignas(8) Mbarrier {
  uint64_t state;
};

#if defined(__CUDACC__)

GPU_DEVICE uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}

// 16 bytes; of them `bytes` (0 or 16) are read, the rest becomes zero.
GPU_DEVICE void cp_async16(void* shared, const void* global, int bytes = 16) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes)
               : "memory");
}
GPU_DEVICE void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int Pending>
GPU_DEVICE void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending) : "memory");
}
// The barrier gets an arrival of this thread when all its cp.async so far have landed. It must be
// counted in `arrivals`.
GPU_DEVICE void cp_async_mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// By one thread, then mbarrier_init_fence() by it and sync_block() by all.
GPU_DEVICE void mbarrier_init(Mbarrier* barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
}
GPU_DEVICE void mbarrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
GPU_DEVICE void mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
}
// Arrives, and lets this phase wait for `bytes` of bulk copies as well.
GPU_DEVICE void mbarrier_arrive_expect(Mbarrier* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
GPU_DEVICE void mbarrier_wait(Mbarrier* barrier, uint32_t parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}\n" ::"r"(shared_address(barrier)),
      "r"(parity)
      : "memory");
}

// This thread's ordinary writes to shared memory become visible to TMA and wgmma (the asynchronous
// proxy).
GPU_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#else

using simt::cp_async16;
using simt::cp_async_commit;
using simt::cp_async_wait;
using simt::fence_proxy_async;

// Take Mbarrier*; in cuda/simt/device.h they take its state.
GPU_DEVICE void cp_async_mbarrier_arrive(
    Mbarrier* barrier, simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::cp_async_mbarrier_arrive(&barrier->state, here);
}
GPU_DEVICE void mbarrier_init(Mbarrier* barrier, int arrivals,
                              simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::mbarrier_init(&barrier->state, arrivals, here);
}
GPU_DEVICE void mbarrier_init_fence() {}
GPU_DEVICE void mbarrier_arrive(Mbarrier* barrier,
                                simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::mbarrier_arrive(&barrier->state, here);
}
GPU_DEVICE void mbarrier_arrive_expect(Mbarrier* barrier, int bytes,
                                       simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::mbarrier_arrive_expect(&barrier->state, bytes, here);
}
GPU_DEVICE void mbarrier_wait(Mbarrier* barrier, uint32_t parity,
                              simt::SourceLocation here = simt::SourceLocation::caller()) {
  simt::mbarrier_wait(&barrier->state, parity, here);
}

#endif

}  // namespace assay::gpu
