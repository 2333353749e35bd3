// ops/dispatch.h and ops/gpu/sort.h on CUB's device-wide primitives, to be timed beside ours. No
// program but the op checks and the benches has them (docs/decisions/0028-*.md).
#pragma once

#include "ops/dispatch.h"
#include "ops/gpu/sort.h"

namespace assay::by_cub {

// A stable sort of pairs by cub::DeviceRadixSort (sort.cu, the one file that includes CUB, which
// nvcc alone compiles). sort_simt.cpp stands in for it in the SIMT emulator.
struct SortPairs {
  View<int32_t, 1> key, value;          // out (n)   ascending
  View<std::byte, 1> scratch;           // tmp (sort_pairs_scratch_bytes(n))
  View<const int32_t, 1> keys, values;  // in  (n)   keys in [0, limit)
  int64_t limit;
};
void sort_pairs(Exec on, const SortPairs& a);
int64_t sort_pairs_scratch_bytes(int64_t n);

// The results of the functions without CUB, to the bit, for workspace_bytes() of keys in
// Exec::workspace. `partial` of the arguments is not used. Nothing is allocated, nothing waits, and
// the calls may be recorded into a graph.
void dispatch(Exec on, const Dispatch& a);
void sort_positions(Exec on, const gpu::SortPositions& a);
int64_t workspace_bytes(int64_t n);  // n: assignments, or keys

}  // namespace assay::by_cub
