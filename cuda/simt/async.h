// The SIMT emulator's cp.async and mbarriers. Kernels use them through cuda/kernel/async.h.
#pragma once

#include <cstdint>

#include "cuda/simt/source_location.h"

namespace assay::simt {

void cp_async16(void* shared, const void* global, int bytes = 16,
                SourceLocation here = SourceLocation::caller());
void cp_async_commit(SourceLocation here = SourceLocation::caller());
void cp_async_wait_groups(int pending, SourceLocation here);
template <int Pending>
inline void cp_async_wait(SourceLocation here = SourceLocation::caller()) {
  cp_async_wait_groups(Pending, here);
}
void cp_async_mbarrier_arrive(uint64_t* barrier, SourceLocation here);

void mbarrier_init(uint64_t* barrier, int arrivals, SourceLocation here);
void mbarrier_arrive(uint64_t* barrier, SourceLocation here);
void mbarrier_arrive_expect(uint64_t* barrier, int bytes, SourceLocation here);
void mbarrier_wait(uint64_t* barrier, uint32_t parity, SourceLocation here);

void fence_proxy_async(SourceLocation here = SourceLocation::caller());

}  // namespace assay::simt
