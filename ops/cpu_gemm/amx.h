// The bf16 products of ops/cpu_gemm/gemm.h on the CPU's matrix unit (AMX): tiles of 16 rows x 16
// steps times 16 steps x 16 columns.
//
// The panels are those of ops/cpu_gemm/gemm.h. Of each 16 steps, the even k are summed from zero in
// ascending order, so are the odd k, and the two sums are added and then added to c. The bits
// differ from those without the unit, but, as there, an element has the same bits in any tile.
// Subnormal inputs and results count as zero.
#pragma once

#include <algorithm>

#include "ops/cpu_gemm/gemm.h"

namespace assay::panel {

constexpr int64_t kAmxRows = 32;   // rows of c computed together
constexpr int64_t kAmxSteps = 16;  // of a tile

// Rows of c of one multiply_amx() at most. More of them, if they are read in place, where b does
// not stay in the L2 cache: it is read fewer times.
constexpr int64_t kMostAmxRows = 3 * kBlockRows;
constexpr bool whole_amx_tiles(int64_t rows, int64_t k) {  // else rows are copied and padded
  return rows % 16 == 0 && k % 32 == 0;
}
constexpr int64_t amx_block_rows(int64_t rows, int64_t cols, int64_t k) {
  const bool stays = 2 * k * cols <= 1 << 20;
  return whole_amx_tiles(rows, k) && !stays ? kMostAmxRows : kBlockRows;
}

// Rows of c of one accumulate_amx() without a scale: c and the rows of a stay in the L2 cache, and
// a's rows are read in long pieces.
constexpr int64_t kMostOuterRows = 384;
constexpr int64_t amx_outer_rows(int64_t cols) {
  constexpr int64_t kBytesOfC = 1 << 20;
  const int64_t bytes_of_row = 4 * std::max<int64_t>(1, cols);
  return std::clamp(kBytesOfC / bytes_of_row / kAmxRows * kAmxRows, kBlockRows, kMostOuterRows);
}

// True if this build targets a CPU with the unit and the system lets this process use it.
bool has_amx();

// multiply() and accumulate() of ops/cpu_gemm/gemm.h on the unit.
template <typename Y>
void multiply_amx(const Product<bf16, Y>& p);
void accumulate_amx(const OuterProduct<bf16>& p);

}  // namespace assay::panel
