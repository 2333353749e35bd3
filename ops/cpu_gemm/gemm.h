// Panels: the one matrix product kernel behind ops/linear.h and ops/grouped_linear.h, and how its
// operands lie.
//
//   c[i,j] = start[i,j] + sum_k a[i,k] b[k,j]
//
// A step is the k that share 32 bits: one float, or a pair (k, k+1) of bf16. b is packed into
// panels of 64 columns (the last has a multiple of 16): for each step, the panel's columns side by
// side, so a step of 16 columns is one vector. a is read as it lies, one step of one row at a time,
// from rows at any address: gathering costs nothing. A tile of 6 x 64 sums stays in registers.
//
// Each c is one chain of sums over k in rising order (bf16: within a step the odd k first),
// starting from `start`: its bits depend neither on the tile it falls into nor on where k is cut
// between steps. Float uses fused multiply-add where the CPU has it. The two products of a bf16
// step are exact in float and added one after the other, to nearest even. vdpbf16ps (AVX512-BF16)
// does the same but takes subnormal inputs and results as zero; sums leave as bf16 to nearest even,
// there too with subnormals as zero. A CPU with a matrix unit multiplies bf16 there
// (ops/cpu_gemm/amx.h), in another order of sums that is fixed as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/bf16.h"

namespace assay::panel {

constexpr int64_t kTileRows = 6;
constexpr int64_t kPanelCols = 64;
constexpr int64_t kVector = 16;     // columns a panel is padded to
constexpr int64_t kBlockRows = 96;  // rows of one piece: 16 tiles
constexpr int64_t kBlockSteps =
    512;  // steps of one pass over a panel: it stays in the second-level cache
constexpr int64_t kSlabSteps = 512;  // steps of `a` packed at a time by accumulate()

template <typename T>
constexpr int64_t kStep = 4 / int64_t(sizeof(T));
template <typename T>
constexpr int64_t steps(int64_t k) {
  return (k + kStep<T> - 1) / kStep<T>;
}
constexpr int64_t padded_cols(int64_t cols) {
  return (cols + kVector - 1) / kVector * kVector;
}
// 32-bit words of a packed (k, cols) matrix; panel p starts at p * kPanelCols * steps.
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
};
template <typename T>
void pack_transposed(const PackTransposed<T>& p, int64_t first, int64_t last);

// Steps [begin, end) of b[k,j] = x[row[k], j] (row = null: k).
template <typename T>
struct PackRows {
  uint32_t* panels;  // out
  int64_t
      panel_words;  //     between panels; panels of one whole matrix lie kPanelCols * steps apart
  int64_t panel_cols;  //     kPanelCols, or anything above it where all columns make one panel
  const T* x;          // in  (., cols)   rows `stride` apart
  int64_t stride;
  const int32_t* row;
  int64_t k, cols;
};
template <typename T>
void pack_rows(const PackRows<T>& p, int64_t begin, int64_t end);

// Rows that are computed together: pieces of whole tiles waste nothing. kBlockRows is a multiple of
// it.
template <typename T>
int64_t tile_rows();

// One piece, by one thread: rows x cols of c, all of k.
template <typename T, typename Y>
struct Product {
  Y* c;            // out (rows, .)   c_stride apart
  const Y* start;  // in  (rows, .)   as c; null: 0
  int64_t c_stride;
  const T* a;  // in  (., k)      row i at a + row[i] * k (row = null: i)
  const int32_t* row;
  const uint32_t* panels;  // in  packed b, from a panel's first step on
  int64_t rows, cols, k;
  std::optional<float> scale;  // c = start + scale * sum, the sum from 0 on
};
template <typename T, typename Y>
void multiply(const Product<T, Y>& p);

// c[i,j] += sum_k a[k,i] b[k,j], one piece by one thread: columns [0, rows) of a, packed here in
// blocks on the stack, and all panels of b.
template <typename T>
struct OuterProduct {
  float* c;  // acc (rows, cols)   rows c_stride apart
  int64_t c_stride;
  const T* a;  // in  (k, .)         a_stride apart
  int64_t a_stride;
  const uint32_t* panels;      // in  packed b
  int64_t panel_words;         //     between panels
  int64_t rows, cols, k;       //     rows <= kBlockRows
  std::optional<float> scale;  // of the sums of kSlabSteps steps, or fewer, before they are added
};
template <typename T>
void accumulate(const OuterProduct<T>& p);

}  // namespace assay::panel
