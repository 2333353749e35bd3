// Stable radix sort on the device: keys of up to 31 bits with their positions, by digits of 8 bits,
// lowest digit first.
//
// No global atomics and no dependence on block order: the result is always the stable order.
#pragma once

#include <cstdint>

#include "base/view.h"
#include "cuda/exec.h"

namespace assay::gpu {

struct SortPositions {
  View<int32_t, 1> key;         // out (n)   ascending
  View<int32_t, 1> position;    // out (n)   index in `keys`; equal keys keep their order
  View<std::byte, 1> scratch;   // tmp (sort_positions_scratch_bytes(n)), 16-byte aligned
  View<const int32_t, 1> keys;  // in  (n)   in [0, limit)
  int64_t limit;
};

void sort_positions(Exec on, const SortPositions& a);
// Bytes of scratch for n keys.
int64_t sort_positions_scratch_bytes(int64_t n);

}  // namespace assay::gpu
