// cp.async and mbarriers of the executor, for kernels: cuda/kernel/async.h.
#pragma once

#include <cstdint>

#include "cuda/simt/source_location.h"

namespace assay::simt {

void cp_async16(void* shared, const void* global, int bytes = 16, Here here = Here::caller());
void cp_async_commit(Here here = Here::caller());
void cp_async_wait_groups(int pending, Here here);
template <int Pending>
inline void cp_async_wait(Here here = Here::caller()) {
  cp_async_wait_groups(Pending, here);
}
void cp_async_mbarrier_arrive(uint64_t* barrier, Here here);

void mbarrier_init(uint64_t* barrier, int arrivals, Here here);
void mbarrier_arrive(uint64_t* barrier, Here here);
void mbarrier_arrive_expect(uint64_t* barrier, int bytes, Here here);
void mbarrier_wait(uint64_t* barrier, uint32_t parity, Here here);

void fence_proxy_async(Here here = Here::caller());

}  // namespace assay::simt
