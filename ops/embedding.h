// Token embedding: rows of a table.
//
//   y[i,c] = gain * weight[token[i], c]
//   dweight[v,c] += gain * sum of dy[i,c] over the i with token[i] = v
//
// The sum is in float in token order; a GPU sums runs of 64 tokens first. Reference:
// tests/ref/embedding.h.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct EmbeddingForward {
  View<T, 2> y;                  // out (N, C)
  View<const T, 2> weight;       // in  (V, C)
  View<const int32_t, 1> token;  // in  (N)      in [0, V)
  float gain = 1.0f;
};

template <typename T>
struct EmbeddingBackward {
  View<float, 2> dweight;        // acc (V, C)
  View<const T, 2> dy;           // in  (N, C)
  View<const int32_t, 1> token;  // in  (N)      in [0, V)
  float gain = 1.0f;
};

template <typename T>
void embedding_forward(Exec on, const EmbeddingForward<T>& a);
template <typename T>
void embedding_backward(Exec on, const EmbeddingBackward<T>& a);

// What on.workspace must have for embedding_backward on `backend`.
int64_t embedding_backward_workspace_bytes(Backend backend, int64_t tokens, int64_t width);

// The rows of the table that the tokens choose are read, y is written.
template <typename T>
Cost embedding_forward_cost(const EmbeddingForward<T>& a) {
  return {.bytes = view_bytes(a.y, a.token) + chosen_bytes(a.weight, a.token.dim[0]),
          .flops = double(a.y.size())};
}
// dy is read, the rows of dweight that the tokens choose are read and written.
template <typename T>
Cost embedding_backward_cost(const EmbeddingBackward<T>& a) {
  return {.bytes = view_bytes(a.dy, a.token) + 2 * chosen_bytes(a.dweight, a.token.dim[0]),
          .flops = 2.0 * double(a.dy.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (embedding.cu).
namespace gpu {
void embedding_forward(Exec on, const EmbeddingForward<float>& a);
void embedding_forward(Exec on, const EmbeddingForward<bf16>& a);
void embedding_backward(Exec on, const EmbeddingBackward<float>& a);
void embedding_backward(Exec on, const EmbeddingBackward<bf16>& a);
int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t width);
}  // namespace gpu

}  // namespace assay
