#include "ops/sparse_linear.h"

#include <algorithm>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/context.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

constexpr int64_t kPieceTokens = 32;
constexpr int64_t kPieceExperts = 64;
constexpr int64_t kChunk = 256;  // columns whose float sums stay in cache

template <typename T>
float rounded(float x) {
  return float(T(x));
}

template <typename T>
void add_scaled(float* sum, float scale, const T* row, int64_t n) {
  for_vectors(n, [&](int64_t j, auto count) {
    store(sum + j, load(sum + j, count) + scale * load(row + j, count), count);
  });
}

template <typename T>
void dgrad(Exec on, const SparseLinearBackward<T>& a) {
  const int64_t width = a.x.dim[1], k = a.dz.dim[1];
  parallel_ranges(on, a.dx.dim[0], kPieceTokens, [&](int64_t begin, int64_t end) {
    alignas(64) float sum[kChunk];
    for (int64_t t = begin; t < end; ++t) {
      for (int64_t c = 0; c < width; c += kChunk) {
        const int64_t n = std::min(kChunk, width - c);
        std::fill(sum, sum + n, 0.0f);
        if (!a.add.empty()) add_scaled(sum, 1.0f, a.add.row(t) + c, n);
        for (int64_t i = 0; i < k; ++i) {
          add_scaled(sum, rounded<T>(a.dz.at(t, i)), a.weight.row(a.expert.at(t, i)) + c, n);
        }
        T* to = a.dx.row(t) + c;
        for_vectors(n, [&](int64_t j, auto count) { store(to + j, load(sum + j, count), count); });
      }
    }
  });
}

template <typename T>
void wgrad(Exec on, const SparseLinearBackward<T>& a) {
  const int64_t width = a.x.dim[1];
  parallel_ranges(on, a.dweight.dim[0], kPieceExperts, [&](int64_t begin, int64_t end) {
    for (int64_t e = begin; e < end; ++e) {
      for (int64_t slot = a.offsets[e]; slot < a.offsets[e + 1]; ++slot) {
        const int64_t t = a.token[slot];
        const int32_t* chosen = a.expert.row(t);
        const int64_t i = std::find(chosen, chosen + a.dz.dim[1], int32_t(e)) - chosen;
        add_scaled(a.dweight.row(e), rounded<T>(a.dz.at(t, i)), a.x.row(t), width);
      }
    }
  });
}

}  // namespace

template <typename T>
void sparse_linear_backward(Exec on, const SparseLinearBackward<T>& a) {
  const int64_t tokens = a.x.dim[0], width = a.x.dim[1], experts = a.weight.dim[0];
  CHECK(a.dx.dim[0] == tokens && a.dx.dim[1] == width && a.weight.dim[1] == width &&
            a.dweight.dim[0] == experts && a.dweight.dim[1] == width,
        "sparse_linear_backward: %s",
        shapes("dx", a.dx, "x", a.x, "weight", a.weight, "dweight", a.dweight).c_str());
  CHECK(a.dz.dim[0] == tokens && a.expert.dim[0] == tokens && a.expert.dim[1] == a.dz.dim[1] &&
            a.token.dim[0] == a.dz.size() && a.offsets.dim[0] == experts + 1,
        "sparse_linear_backward: %s",
        shapes("dz", a.dz, "expert", a.expert, "token", a.token, "offsets", a.offsets).c_str());
  const ProfileScope timed(on, "sparse_linear_backward", sparse_linear_backward_cost(a));
  if (on.gpu) return gpu::sparse_linear_backward(on, a);
  CHECK(a.offsets[0] == 0 && a.offsets[experts] == a.token.dim[0],
        "sparse_linear_backward: offsets from %ld to %ld, of %ld assignments", long(a.offsets[0]),
        long(a.offsets[experts]), long(a.token.dim[0]));
  dgrad(on, a);
  wgrad(on, a);
}

template void sparse_linear_backward<float>(Exec, const SparseLinearBackward<float>&);
template void sparse_linear_backward<bf16>(Exec, const SparseLinearBackward<bf16>&);

bool sparse_linear_pays_on_gpu(int64_t experts, int64_t top_k) {
  return experts >= 110 * top_k;
}

bool sparse_linear_pays(Exec on, int64_t experts, int64_t top_k) {
  if (on.gpu == nullptr) return experts >= 32 * top_k;
  const bool dense = on.gpu->predecessors.has(gpu::Predecessor::kRouterProducts);
  return !dense && sparse_linear_pays_on_gpu(experts, top_k);
}

namespace gpu {
ASSAY_GPU_ABSENT(sparse_linear_backward, SparseLinearBackward<float>)
ASSAY_GPU_ABSENT(sparse_linear_backward, SparseLinearBackward<bf16>)
}  // namespace gpu

}  // namespace assay
