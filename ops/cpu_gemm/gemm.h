// Panels: the matrix product kernel behind ops/linear.h and ops/grouped_linear.h, and the layout of
// its operands.
//
//   c[i,j] = start[i,j] + sum_k a[i,k] b[k,j]
//
// A step is the k that share 32 bits: one float, or a pair (k, k+1) of bf16. b is packed into
// panels of 64 columns (the last one a multiple of 16), without AVX-512 of 16, and for bf16 in a
// build for a matrix unit of 32: for each step the columns of the panel are contiguous, so a step
// of 16 columns is one vector. a is read in place, one step of one row at a time, from rows at any
// address: gathering is free. A tile of 6 rows and the columns of a panel stays in registers.
//
// Each c is one chain of sums over k in ascending order (bf16: within a step the odd k first),
// starting from `start`: its bits depend neither on its tile nor on where k is split between steps.
// Float uses fused multiply-add if the CPU has it. The two products of a bf16 step are exact in
// float and added one after the other, to nearest even. vdpbf16ps (AVX512-BF16) does the same but
// treats subnormal inputs and results as zero; sums are stored as bf16 to nearest even, where the
// conversion also flushes subnormals. On a CPU with a matrix unit, bf16 is multiplied on the unit
// (ops/cpu_gemm/amx.h), in another fixed order of sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>

#include "base/bf16.h"
#include "base/math.h"
#include "ops/cpu_gemm/amx_target.h"

namespace assay::panel {

constexpr int64_t kTileRows = 6;
constexpr int64_t kVector = 16;     // panels are padded to a multiple of it
constexpr int64_t kBlockRows = 96;  // rows per piece: 16 tiles; block_rows() may be more
// Columns of a panel, and steps per pass over it: what a tile of all registers takes per step, and
// a panel that stays in the L2 cache, or in the L1 cache where a step takes half as many registers.
#if defined(__AVX512F__)
constexpr int64_t kWidePanel = 64, kBlockSteps = 512;
#else
constexpr int64_t kWidePanel = 16, kBlockSteps = 256;
#endif
template <typename T>
constexpr int64_t kPanelCols = (std::is_same_v<T, bf16> && ASSAY_AMX) ? 32 : kWidePanel;
constexpr int64_t kBlockCols = 256;  // columns that share a pass over the rows of a
constexpr int64_t kSlabSteps = 512;  // steps of `a` that accumulate() packs at a time, at most

template <typename T>
constexpr int64_t kStep = 4 / int64_t(sizeof(T));
template <typename T>
constexpr int64_t steps(int64_t k) {
  return ceil_div(k, kStep<T>);
}
constexpr int64_t padded_cols(int64_t cols) {
  return round_up(cols, kVector);
}
// 32-bit words of a packed (k, cols) matrix; panel p starts at p * kPanelCols<T> * steps.
template <typename T>
constexpr int64_t words(int64_t k, int64_t cols) {
  return steps<T>(k) * padded_cols(cols);
}

// Panels [first, last) of b[k,j] = w[j,k], w (cols, k) row-major.
template <typename T>
struct PackTransposed {
  uint32_t* panels;  // out words<T>(k, cols)
  const T* w;        // in  (cols, k)
  int64_t cols, k;
  bool past_caches = false;  // panels that are read much later
};
template <typename T>
void pack_transposed(const PackTransposed<T>& p, int64_t first, int64_t last);

// Steps [begin, end) of b[k,j] = x[row[k], j] (row = null: k). Steps after the last k are zeros.
template <typename T>
struct PackRows {
  uint32_t* panels;  // out
  // Words from one panel to the next: kPanelCols<T> * steps if one whole matrix is packed
  int64_t panel_words;
  int64_t panel_cols;  //     kPanelCols<T>, or more if all columns form one panel
  const T* x;          // in  (., cols)   rows `stride` apart
  int64_t stride;
  const int32_t* row;
  int64_t k, cols;
  bool past_caches = false;  // panels that are read much later
};
template <typename T>
void pack_rows(const PackRows<T>& p, int64_t begin, int64_t end);

// Rows that are computed together: pieces of whole tiles waste nothing. Divides kBlockRows.
template <typename T>
int64_t tile_rows();
// Steps that are multiplied together: 1, or those of a tile of the matrix unit.
template <typename T>
int64_t tile_steps();

// One piece, by one thread: rows x cols of c, all of k; at most block_rows() rows.
template <typename T, typename Y>
struct Product {
  Y* c;            // out (rows, .)   c_stride apart
  const Y* start;  // in  (rows, .)   as c; null: 0
  int64_t c_stride;
  const T* a;  // in  (., k)      row i at a + row[i] * a_stride (row = null: i)
  int64_t a_stride;
  const int32_t* row;
  const uint32_t* panels;  // in  packed b, from a panel's first step on
  int64_t rows, cols, k;
  std::optional<float> scale;  // c = start + scale * sum; the sum starts from 0
};
template <typename T, typename Y>
void multiply(const Product<T, Y>& p);
// Bytes of b that a thread's rows pass over before the next columns: they stay in the L2 cache.
template <typename T>
int64_t chunk_bytes();
// Rows that one call of multiply() takes at most, of `rows` in all, a multiple of tile_rows().
template <typename T>
int64_t block_rows(int64_t rows, int64_t cols, int64_t k, bool gathers);

// c[i,j] += sum_k a[k,i] b[k,j], or = if `store`, one piece by one thread: columns [0, rows) of
// a, packed in blocks on the stack, and all panels of b.
template <typename T>
struct OuterProduct {
  float* c;  // acc (rows, cols)   rows c_stride apart; if stored: out
  int64_t c_stride;
  bool store;  // c is not read; k is not 0
  const T* a;  // in  (k, .)         a_stride apart
  int64_t a_stride;
  const uint32_t* panels;  // in  packed b
  int64_t panel_words;     //     words from one panel to the next
  bool padded;             //     with steps of zeros to a multiple of tile_steps()
  int64_t rows, cols, k;   //     rows <= outer_rows()
  // Applied to the sums of kSlabSteps steps, or fewer, before they are added.
  std::optional<float> scale;
};
template <typename T>
void accumulate(const OuterProduct<T>& p);
// Rows of c that one call of accumulate() takes at most, a multiple of tile_rows().
template <typename T>
int64_t outer_rows(int64_t cols, bool scaled);

}  // namespace assay::panel
