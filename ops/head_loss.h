// The head and its cross-entropy, forward and backward in one pass over chunks of rows, so that the
// logits of all tokens never exist at once.
//
//   z[i,v] = logit_gain * sum_c x[i,c] weight[v,c]
//   nats[i] = logsumexp_v z[i,v] - z[i, target[i]]
//   dz[i,v] = grad_scale * logit_gain * (softmax(z)[i,v] - [v = target[i]])
//   dx[i,c] = sum_v dz[i,v] weight[v,c]            dweight[v,c] += sum_i dz[i,v] x[i,c]
//
// A target is counted unless it is negative or equal to mask_id; a row without a counted target has
// nats 0 and dx 0. loss_sum adds the nats of the counted targets in double: in row order on the
// CPU, in another fixed order on a GPU. grad_scale is 1 / (counted targets of the whole step).
// most_likely[i] is 1 if the target is counted, its logit is the largest of the row and no smaller
// id has the same logit; else 0. on.workspace must have
// linear_workspace_bytes<T>(backend, head_loss_chunk_rows(N), C). Reference: tests/ref/head_loss.h.
#pragma once

#include <cstddef>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/weight_matrix.h"

namespace assay {

template <typename T>
struct HeadLoss {
  View<T, 2> dx;               // out (N, C)
  View<float, 1> nats = {};    // out (N)      optional
  View<double, 1> loss_sum;    // acc (1)      nats of the counted targets
  View<float, 2> dweight;      // acc (V, C)   with kStore: out
  View<std::byte, 1> scratch;  // tmp (head_loss_scratch_bytes<T>(backend, N, V)), 64-byte aligned
  View<const T, 2> x;          // in  (N, C)
  WeightMatrix<T> weight;      // in  (V, C)
  View<const int32_t, 1> target;    // in  (N)      below V
  View<const float, 1> grad_scale;  // in  (1)      on the device, as it changes every step
  int32_t mask_id = -1;             // targets equal to it, and negative ones, are not counted
  float logit_gain = 1.0f;
  GradientSum sum = GradientSum::kAdd;
};

template <typename T>
struct HeadLossEval {
  View<float, 1> nats = {};           // out (N)      optional
  View<uint8_t, 1> most_likely = {};  // out (N)      optional
  View<double, 1> loss_sum;           // acc (1)
  View<std::byte, 1>
      scratch;             // tmp (head_loss_eval_scratch_bytes<T>(backend, N, V)), 64-byte aligned
  View<const T, 2> x;      // in  (N, C)
  WeightMatrix<T> weight;  // in  (V, C)
  View<const int32_t, 1> target;  // in  (N)
  int32_t mask_id = -1;
  float logit_gain = 1.0f;
};

template <typename T>
void head_loss(Exec on, const HeadLoss<T>& a);
template <typename T>
void head_loss_eval(Exec on, const HeadLossEval<T>& a);

// Rows of logits whose gradient exists at once on the CPU.
int64_t head_loss_chunk_rows(int64_t tokens);
// Bytes of HeadLoss::scratch. For a GPU they are room for chunks of 8192 rows, its best size. It
// also works with a CPU's bytes, in smaller chunks; the last bits of dweight depend on the chunk.
template <typename T>
int64_t head_loss_scratch_bytes(Backend backend, int64_t tokens, int64_t vocab);
template <typename T>
int64_t head_loss_eval_scratch_bytes(Backend backend, int64_t tokens, int64_t vocab);
// Number of counted targets, the divisor of the step's loss. Reads host memory.
int64_t counted_targets(View<const int32_t, 1> target, int32_t mask_id);

// Three products; x, dx and the weight once, dweight read and written unless it is stored.
template <typename T>
Cost head_loss_cost(const HeadLoss<T>& a) {
  const double times = a.sum == GradientSum::kStore ? 1.0 : 2.0;
  return {.bytes = times * view_bytes(a.dweight) +
                   view_bytes(a.x, a.dx, a.weight.plain, a.nats, a.target, a.grad_scale) +
                   2 * view_bytes(a.loss_sum),
          .flops = 6.0 * double(a.x.size()) * double(a.dweight.dim[0])};
}
template <typename T>
Cost head_loss_eval_cost(const HeadLossEval<T>& a) {
  return {.bytes = view_bytes(a.x, a.weight.plain, a.nats, a.most_likely, a.target) +
                   2 * view_bytes(a.loss_sum),
          .flops = 2.0 * double(a.x.dim[0]) * double(a.weight.plain.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (head_loss.cu).
namespace gpu {
void head_loss(Exec on, const HeadLoss<float>& a);
void head_loss(Exec on, const HeadLoss<bf16>& a);
void head_loss_eval(Exec on, const HeadLossEval<float>& a);
void head_loss_eval(Exec on, const HeadLossEval<bf16>& a);
int64_t head_loss_chunk_bytes(int64_t tokens, int64_t vocab, int64_t element_bytes);
}  // namespace gpu

}  // namespace assay
