// Asynchronous copies, and the barriers in shared memory that wait for them.
//
//   cp.async   16 bytes per thread, in groups: cp_async_commit() closes a group, and
//              cp_async_wait<Pending>() waits until at most Pending of them are in flight.
//   mbarrier   Counts arrivals and, for bulk copies, bytes; a phase completes when all have come.
//              A waiter passes the parity of its phase: 0 for the first, then 1, 0, ...
//
// Shared addresses are passed as pointers; the wrappers convert them to 32 bits.
#pragma once

#include <cstdint>

#include "cuda/kernel/language.h"
#if !defined(__CUDACC__)
#include "cuda/simt/device.h"
#elif defined(ASSAY_GPU_WAIT_LIMIT_S)
#include "cuda/kernel/stuck_wait.h"
#endif

namespace assay::gpu {

struct alignas(8) Mbarrier {
  uint64_t state;
};

#if defined(__CUDACC__)

GPU_DEVICE uint32_t shared_address(const void* p) {
  return uint32_t(__cvta_generic_to_shared(p));
}

// Copies 16 bytes. With bytes = 0 nothing is read and the destination becomes zero.
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
// Arrives on the barrier once all earlier cp.async of this thread have landed. The `arrivals` of
// mbarrier_init must count it.
GPU_DEVICE void cp_async_mbarrier_arrive(Mbarrier* barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
}

// Called by one thread, followed by its mbarrier_init_fence() and by sync_block() of all threads.
// `arrivals`: per phase.
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
// Arrives, and makes this phase wait for `bytes` of bulk copies as well.
GPU_DEVICE void mbarrier_arrive_expect(Mbarrier* barrier, int bytes) {
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
}
// Returns once the phase of this parity has completed.
#if !defined(ASSAY_GPU_WAIT_LIMIT_S)
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
#else  // a build that looks for kernels that hang (cuda/stuck_wait.h)
GPU_DEVICE bool mbarrier_completed(Mbarrier* barrier, uint32_t parity) {
  uint32_t completed;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}\n"
      : "=r"(completed)
      : "r"(shared_address(barrier)), "r"(parity)
      : "memory");
  return completed != 0;
}
GPU_DEVICE void mbarrier_wait(Mbarrier* barrier, uint32_t parity) {
  const uint32_t begin = seconds_now();
  while (!mbarrier_completed(barrier, parity)) {
    if (seconds_now() - begin > ASSAY_GPU_WAIT_LIMIT_S) {
      end_stuck_wait(shared_address(barrier), parity);
    }
  }
}
#endif

// Makes this thread's ordinary writes to shared memory visible to TMA and wgmma (the async proxy).
GPU_DEVICE void fence_proxy_async() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

#else

using simt::cp_async16;
using simt::cp_async_commit;
using simt::cp_async_wait;
using simt::fence_proxy_async;
using simt::shared_address;

// These take an Mbarrier*; the functions of the SIMT emulator take its state.
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
