// RMSNorm over the last axis, with the residual addition before it.
//
//   r[i,c]  = x[i,c] + gain * branch[i,c]                     (r = x without a branch)
//   rstd[i] = 1 / sqrt(mean_c r[i,c]^2 + eps)                 y[i,c] = w[c] * r[i,c] * rstd[i]
//
//   g[i,c]   = w[c] * dy[i,c],   rhat = r * rstd
//   dr[i,c] += rstd[i] * (g[i,c] - rhat[i,c] * mean_c(g[i,c] * rhat[i,c]))
//   dw[c]   += sum_i dy[i,c] * rhat[i,c]                       dbranch = gain * dr, dx = dr
//
// r is rounded to T before it is normalised, so that backward sees the same values. Sums are in
// float whatever T is. Reference: tests/ref/rmsnorm.h.
//
// On a GPU rows of up to 1024 columns, a multiple of 8, at multiples of 16 bytes stay in registers.
// Others take slower kernels, which read single elements, and their rows more than once.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct RmsNormForward {
  View<T, 2> y;                  // out (N, C)
  View<float, 1> rstd;           // out (N)      kept for backward
  View<T, 2> resid = {};         // out (N, C)   r, required with a branch; may be x itself
  View<float, 1> amax = {};      // acc (1)      amax slot: raised to max |y| as stored; optional
  View<const T, 2> x;            // in  (N, C)
  View<const T, 2> branch = {};  // in  (N, C)   optional
  View<const float, 1> weight;   // in  (C)
  float gain = 1.0f;
  float eps = 1e-5f;
};

template <typename T>
struct RmsNormBackward {
  View<T, 2> dresid;            // acc (N, C)   gradient of r; on return also that of x
  View<T, 2> dbranch = {};      // out (N, C)   gain * dresid, optional
  View<float, 1> amax = {};     // acc (1)      amax slot: raised to max |dbranch|, without dbranch
                                //              to max |dresid|; optional
  View<float, 1> dweight;       // acc (C)
  View<float, 2> partial;       // tmp (rmsnorm_backward_blocks(N), C)
  View<const T, 2> dy;          // in  (N, C)
  View<const T, 2> resid;       // in  (N, C)   r of forward
  View<const float, 1> weight;  // in  (C)
  View<const float, 1> rstd;    // in  (N)
  float gain = 1.0f;
};

template <typename T>
void rmsnorm_forward(Exec on, const RmsNormForward<T>& a);
template <typename T>
void rmsnorm_backward(Exec on, const RmsNormBackward<T>& a);
// Rows of RmsNormBackward::partial for `rows` rows of dy.
int64_t rmsnorm_backward_blocks(int64_t rows);

// x, branch and weight are read once; y, resid and rstd are written once.
template <typename T>
Cost rmsnorm_forward_cost(const RmsNormForward<T>& a) {
  const double wide = view_bytes(a.x, a.y);
  const double residual = a.branch.empty() ? 0.0 : view_bytes(a.branch, a.resid);
  return {.bytes = wide + residual + view_bytes(a.rstd, a.weight) + 2 * view_bytes(a.amax),
          .flops = 4.0 * double(a.x.size())};
}
// dy and resid are read, dresid is read and written, dbranch is written.
template <typename T>
Cost rmsnorm_backward_cost(const RmsNormBackward<T>& a) {
  return {.bytes = view_bytes(a.dbranch, a.dy, a.resid, a.weight, a.rstd) +
                   2 * view_bytes(a.dresid, a.dweight, a.amax),
          .flops = 9.0 * double(a.dy.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (rmsnorm.cu).
namespace gpu {
void rmsnorm_forward(Exec on, const RmsNormForward<float>& a);
void rmsnorm_forward(Exec on, const RmsNormForward<bf16>& a);
void rmsnorm_backward(Exec on, const RmsNormBackward<float>& a);
void rmsnorm_backward(Exec on, const RmsNormBackward<bf16>& a);
}  // namespace gpu

}  // namespace assay
