// The SIMT emulator's bulk copies. Kernels use them through cuda/kernel/tma.h.
#pragma once

#include <array>
#include <cstdint>

#include "cuda/simt/source_location.h"
#include "cuda/tensor_map.h"

namespace assay::simt {

void tma_load(void* shared, const gpu::TensorMap& map, uint64_t* barrier,
              const std::array<int, 5>& at, int rank, SourceLocation here);
// To the same place in each block of the cluster whose bit is set in `blocks`.
void tma_load_multicast(void* shared, const gpu::TensorMap& map, uint64_t* barrier, uint32_t blocks,
                        const std::array<int, 5>& at, int rank, SourceLocation here);
void tma_store(const gpu::TensorMap& map, const void* shared, const std::array<int, 5>& at,
               int rank, SourceLocation here);
void bulk_load(void* shared, const void* global, int bytes, uint64_t* barrier, SourceLocation here);
void bulk_commit(SourceLocation here = SourceLocation::caller());
void bulk_wait_groups(int pending, SourceLocation here);
void bulk_wait_read_groups(int pending, SourceLocation here);
template <int Pending>
inline void bulk_wait(SourceLocation here = SourceLocation::caller()) {
  bulk_wait_groups(Pending, here);
}
template <int Pending>
inline void bulk_wait_read(SourceLocation here = SourceLocation::caller()) {
  bulk_wait_read_groups(Pending, here);
}

}  // namespace assay::simt
