// Which elements of a product d a lane has: the accumulators of mma_m16n8k16 (N = 8) and of wgmma
// (any N). A warp owns 16 rows of N columns; element i of a lane is at (accum_row(i),
// accum_column(i)). With g = lane / 4, t = lane % 4, n in [0, N / 8):
//   d[4 n]       (g, 8 n + 2 t)          d[4 n + 1]   the next column
//   d[4 n + 2]   (g + 8, 8 n + 2 t)      d[4 n + 3]   the next column
//
// The operand a in registers has the same layout in pairs: register p holds what is at accumulators
// 2 p and 2 p + 1, the first in its low half. So accumulators, rounded, are an operand.
// Source: PTX ISA, "Matrix fragments for mma.m16n8k16", "Register Fragments for wgmma.m64nNk16".
#pragma once

#include "cuda/kernel/language.h"
#include "cuda/kernel/warp.h"

namespace assay::gpu {

inline constexpr int kAccumLanes = 4;  // adjacent lanes that share their rows

// A lane has elements of two rows, 8 apart: 0 for the upper, 1 for the lower.
constexpr int accum_half(int i) {
  return i / 2 % 2;
}
constexpr int accum_row(int i, int lane) {
  return lane / kAccumLanes + accum_half(i) * 8;
}
constexpr int accum_column(int i, int lane) {
  return i / 4 * 8 + lane % kAccumLanes * 2 + i % 2;
}
// Of the calling lane. Element 0 is in its upper row, element 2 in its lower row.
GPU_DEVICE int accum_row(int i) {
  return accum_row(i, lane());
}
GPU_DEVICE int accum_column(int i) {
  return accum_column(i, lane());
}

}  // namespace assay::gpu
