// Causal attention with grouped key-value heads; the T x T matrix is never stored.
//
//   s[t,j] = q[t] . k[j] / sqrt(D), j <= t      p = softmax_j(s)      out[t] = sum_j p[t,j] v[j]
//   lse[t] = log sum_j exp(s[t,j])              kept for backward
//
//   delta[t] = dout[t] . out[t]      ds[t,j] = p[t,j] (dout[t] . v[j] - delta[t]) / sqrt(D)
//   dq[t] = sum_j ds[t,j] k[j]     dk[j] = sum_t ds[t,j] q[t]     dv[j] = sum_t p[t,j] dout[t]
//
// With a table of RoPE (ops/rope.h) q and k of qkv are rotated, and dq and dk are turned back, by
// the angles of their positions in the sequence, before they are rounded to T and stored.
//
// Query head h reads key-value head h / (Hq / Hkv); dk and dv are summed over the group in order of
// h. A row of qkv holds the q heads, then the k heads, then the v heads; sequence b is rows
// [b T, (b + 1) T). On a GPU qkv, out and their gradients begin at multiples of 16 bytes, as
// planned memory does. In bf16, p and ds are rounded to bf16 before their products on a GPU and
// where the CPU has AVX512-BF16; other CPUs multiply floats. Reference: tests/ref/attention.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct AttentionForward {
  View<T, 2> out;            // out (N, Hq D)
  View<float, 3> lse;        // out (B, Hq, T)
  View<float, 1> amax = {};  // acc (1)   amax slot: raised to max |out| as stored; optional
  View<const T, 2> qkv;      // in  (N, (Hq + 2 Hkv) D)
  int64_t batch;             // B
  int64_t sequence;          // T
  int64_t heads;             // Hq, a multiple of Hkv
  int64_t kv_heads;          // Hkv
  int64_t head_dim;          // D: 32, 64 or 128
};

template <typename T>
struct AttentionBackward {
  View<T, 2> dqkv;  // out (N, (Hq + 2 Hkv) D)
  View<float, 1> dqk_amax =
      {};                       // acc (1)   amax slot: raised to max |dq|, |dk| as stored; optional
  View<float, 1> dv_amax = {};  // acc (1)   the same of |dv|, and may be the same slot; optional
  View<float, 1> scratch;       // tmp (attention_backward_scratch)
  View<const T, 2> dout;        // in  (N, Hq D)
  View<const T, 2> out;         // in  (N, Hq D)
  View<const float, 3> lse;     // in  (B, Hq, T)
  View<const T, 2> qkv;         // in  (N, (Hq + 2 Hkv) D)
  View<const float, 2> cos = {};  // in (>= T, D / 2)   rope_table; optional
  View<const float, 2> sin = {};  // in (>= T, D / 2)
  int64_t batch;
  int64_t sequence;
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
};

struct AttentionShape {
  int64_t batch, sequence, heads, kv_heads, head_dim;
};

template <typename T>
void attention_forward(Exec on, const AttentionForward<T>& a);
template <typename T>
void attention_backward(Exec on, const AttentionBackward<T>& a);
// Number of floats of AttentionBackward::scratch: on a CPU dK and dV of every text, of which the
// matrix unit takes one head's a thread; on a GPU two terms of each query of each head.
int64_t attention_backward_scratch(Backend backend, const AttentionShape& shape);

// Two products over the causal half of T x T; exponentials are not counted.
template <typename T>
Cost attention_forward_cost(const AttentionForward<T>& a) {
  const double pairs = double(a.batch * a.heads) * double(a.sequence) * double(a.sequence + 1) / 2;
  return {.bytes = view_bytes(a.qkv, a.out, a.lse) + 2 * view_bytes(a.amax),
          .flops = 4.0 * pairs * double(a.head_dim)};
}
// Five products: s recomputed, dp, dv, dk, dq.
template <typename T>
Cost attention_backward_cost(const AttentionBackward<T>& a) {
  const double pairs = double(a.batch * a.heads) * double(a.sequence) * double(a.sequence + 1) / 2;
  return {.bytes = view_bytes(a.qkv, a.dqkv, a.out, a.dout, a.lse) +
                   2 * view_bytes(a.dqk_amax, a.dv_amax) + chosen_bytes(a.cos, a.sequence) +
                   chosen_bytes(a.sin, a.sequence),
          .flops = 10.0 * pairs * double(a.head_dim)};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (ops/attention/gpu_*.cu).
namespace gpu {
void attention_forward(Exec on, const AttentionForward<float>& a);
void attention_forward(Exec on, const AttentionForward<bf16>& a);
void attention_backward(Exec on, const AttentionBackward<float>& a);
void attention_backward(Exec on, const AttentionBackward<bf16>& a);
}  // namespace gpu

}  // namespace assay
