// Rotary position embedding over the whole head, half-split pairs, in place on the packed qkv
// tensor.
//
//   x[d]       <- x[d] cos - x[d + D/2] sin
//   x[d + D/2] <- x[d + D/2] cos + x[d] sin        angle = t * theta^(-2d/D), d < D/2
//
// t is the position in the sequence: i mod T for row i of qkv, or position[i]. Backward is the
// inverse rotation of the gradient. Training has it from attention_backward, which turns dq and dk
// before it stores them, so no model calls this op. A row holds the q heads, then the k heads, then
// the v heads (unchanged). Reference: tests/ref/rope.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct RopeForward {
  View<T, 2> qkv;                        // acc (N, (Hq + 2 Hkv) D)   q and k rotated in place
  View<const float, 2> cos;              // in  (>= T, D / 2)         rope_table
  View<const float, 2> sin;              // in  (>= T, D / 2)
  int64_t heads;                         // Hq
  int64_t kv_heads;                      // Hkv
  int64_t head_dim;                      // D
  int64_t sequence;                      // T, divides N; above every `position` if given
  View<const int32_t, 1> position = {};  // in  (N)   optional
};

template <typename T>
struct RopeBackward {
  View<T, 2> dqkv;           // acc (N, (Hq + 2 Hkv) D)   dq and dk rotated back in place
  View<float, 1> amax = {};  // acc (1)   amax slot: raised to max |dq|, |dk| as stored; optional
  View<const float, 2> cos;  // in  (>= T, D / 2)
  View<const float, 2> sin;  // in  (>= T, D / 2)
  int64_t heads;
  int64_t kv_heads;
  int64_t head_dim;
  int64_t sequence;
};

template <typename T>
void rope_forward(Exec on, const RopeForward<T>& a);
template <typename T>
void rope_backward(Exec on, const RopeBackward<T>& a);

// Fills cos and sin (T, D / 2), computed in double. Called once, before training.
void rope_table(View<float, 2> cos, View<float, 2> sin, double theta);

// q and k are read and written, of the table the rows of the positions are read.
template <typename T>
Cost rope_forward_cost(const RopeForward<T>& a) {
  const double elements = double(a.qkv.dim[0] * (a.heads + a.kv_heads) * a.head_dim);
  const int64_t positions = a.qkv.dim[0] < a.sequence ? a.qkv.dim[0] : a.sequence;
  return {.bytes = 2.0 * elements * sizeof(T) + chosen_bytes(a.cos, positions) +
                   chosen_bytes(a.sin, positions) + view_bytes(a.position),
          .flops = 3.0 * elements};
}
template <typename T>
Cost rope_backward_cost(const RopeBackward<T>& a) {
  const double elements = double(a.dqkv.dim[0] * (a.heads + a.kv_heads) * a.head_dim);
  const int64_t positions = a.dqkv.dim[0] < a.sequence ? a.dqkv.dim[0] : a.sequence;
  return {.bytes = 2.0 * elements * sizeof(T) + chosen_bytes(a.cos, positions) +
                   chosen_bytes(a.sin, positions) + 2 * view_bytes(a.amax),
          .flops = 3.0 * elements};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (rope.cu).
namespace gpu {
void rope_forward(Exec on, const RopeForward<float>& a);
void rope_forward(Exec on, const RopeForward<bf16>& a);
void rope_backward(Exec on, const RopeBackward<float>& a);
void rope_backward(Exec on, const RopeBackward<bf16>& a);
}  // namespace gpu

}  // namespace assay
