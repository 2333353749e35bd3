// The products of ops/cpu_gemm/gemm.h over ragged segments of rows, shared among threads; the bits
// do not depend on the number of threads. A dense linear layer is one segment.
#pragma once

#include <cstddef>
#include <cstdint>

#include "cuda/exec.h"
#include "ops/product_scale.h"
#include "ops/weight_matrix.h"

namespace assay {

// Rows offsets[e] <= i < offsets[e+1] belong to segment e.
struct Segments {
  const int32_t* offsets;
  int64_t count;

  int64_t begin(int64_t e) const { return offsets[e]; }
  int64_t end(int64_t e) const { return offsets[e + 1]; }
  int64_t size(int64_t e) const { return end(e) - begin(e); }
};

// c[i,:] = start[i,:] + scale a[row[i],:] b[e]
template <typename T, typename Y>
struct SegmentProduct {
  Y* c;            // out (rows, cols)   rows c_stride apart
  const Y* start;  // in  (rows, cols)   as c; null: 0
  int64_t c_stride;
  const T* a;  // in  (., k)         rows a_stride apart
  int64_t a_stride;
  const int32_t* row;  // in  (rows)         null: i
  const std::byte* b;  // in  panels of segment e at b + e * b_bytes
  int64_t b_bytes;
  int64_t cols, k;
  Segments segments;
  ProductScale scale;
};
template <typename T, typename Y>
void multiply_segments(Exec on, const SegmentProduct<T, Y>& p);

// c[e] += scale sum_i a[i,:]^T b[row[i],:], or = with kStore
template <typename T>
struct SegmentOuterProduct {
  float* c;  // acc (count, rows, cols)   with kStore: out
  GradientSum sum;
  const T* a;  // in  (., rows)   rows a_stride apart
  int64_t a_stride;
  const T* b;          // in  (., cols)
  const int32_t* row;  // in  null: i
  int64_t rows, cols;
  Segments segments;
  ProductScale scale;
};
template <typename T>
void accumulate_segments(Exec on, const SegmentOuterProduct<T>& p);
// Bytes of on.workspace that accumulate_segments needs for `rows` rows (i) in total.
template <typename T>
int64_t accumulate_workspace_bytes(int64_t rows, int64_t segments, int64_t cols);

}  // namespace assay
