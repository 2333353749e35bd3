#include "ops/embedding.h"

#include <algorithm>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

constexpr int64_t kRowsPerPiece = 64;
constexpr int64_t kColumnsPerPiece = 64;  // of dweight: four cache lines of a row

void check_tokens(const char* op, View<const int32_t, 1> token, int64_t vocab) {
  for (int64_t i = 0; i < token.dim[0]; ++i) {
    CHECK(token[i] >= 0 && token[i] < vocab, "%s: token[%ld] = %d, vocabulary %ld", op, long(i),
          int(token[i]), long(vocab));
  }
}

}  // namespace

namespace cpu {

template <typename T>
void embedding_forward(Exec on, const EmbeddingForward<T>& a) {
  const int64_t width = a.y.dim[1];
  parallel_ranges(on, a.y.dim[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const T* weight = a.weight.row(a.token[i]);
      T* y = a.y.row(i);
      if (a.gain == 1.0f) {
        std::copy(weight, weight + width, y);
        continue;
      }
      for_vectors(width, [&](int64_t c, auto count) {
        store(y + c, a.gain * load(weight + c, count), count);
      });
    }
  });
}

// A piece owns columns of the whole table and takes the tokens in order, so no two pieces write the
// same element.
template <typename T>
void embedding_backward(Exec on, const EmbeddingBackward<T>& a) {
  parallel_ranges(on, a.dy.dim[1], kColumnsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = 0; i < a.dy.dim[0]; ++i) {
      const T* dy = a.dy.row(i) + begin;
      float* dweight = a.dweight.row(a.token[i]) + begin;
      for_vectors(end - begin, [&](int64_t c, auto count) {
        store(dweight + c, load(dweight + c, count) + a.gain * load(dy + c, count), count);
      });
    }
  });
}

}  // namespace cpu

int64_t embedding_backward_workspace_bytes(Backend backend, int64_t tokens, int64_t width) {
  return backend == Backend::kGpu ? gpu::embedding_backward_workspace_bytes(tokens, width) : 0;
}

template <typename T>
void embedding_forward(Exec on, const EmbeddingForward<T>& a) {
  const ProfileScope timed(on, "embedding_forward", embedding_forward_cost(a));
  CHECK(a.y.dim[0] == a.token.dim[0] && a.y.dim[1] == a.weight.dim[1], "embedding_forward: %s",
        shapes("y", a.y, "weight", a.weight, "token", a.token).c_str());
  if (on.gpu) return gpu::embedding_forward(on, a);
  check_tokens("embedding_forward", a.token, a.weight.dim[0]);
  cpu::embedding_forward(on, a);
}

template <typename T>
void embedding_backward(Exec on, const EmbeddingBackward<T>& a) {
  const ProfileScope timed(on, "embedding_backward", embedding_backward_cost(a));
  CHECK(a.dy.dim[0] == a.token.dim[0] && a.dy.dim[1] == a.dweight.dim[1], "embedding_backward: %s",
        shapes("dy", a.dy, "dweight", a.dweight, "token", a.token).c_str());
  if (on.gpu) return gpu::embedding_backward(on, a);
  check_tokens("embedding_backward", a.token, a.dweight.dim[0]);
  cpu::embedding_backward(on, a);
}

template void embedding_forward<float>(Exec, const EmbeddingForward<float>&);
template void embedding_forward<bf16>(Exec, const EmbeddingForward<bf16>&);
template void embedding_backward<float>(Exec, const EmbeddingBackward<float>&);
template void embedding_backward<bf16>(Exec, const EmbeddingBackward<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(embedding_forward, EmbeddingForward<float>)
ASSAY_GPU_ABSENT(embedding_forward, EmbeddingForward<bf16>)
ASSAY_GPU_ABSENT(embedding_backward, EmbeddingBackward<float>)
ASSAY_GPU_ABSENT(embedding_backward, EmbeddingBackward<bf16>)
[[gnu::weak]] int64_t embedding_backward_workspace_bytes(int64_t, int64_t) {
  return 0;
}
}  // namespace gpu

}  // namespace assay
