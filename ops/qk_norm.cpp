#include "ops/qk_norm.h"

#include <algorithm>
#include <cmath>

#include "base/bf16.h"
#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_amax.h"

namespace assay {

namespace {

// Rows of one partial weight gradient; fixes the order of the sum.
constexpr int64_t kRowsPerBlock = 64;

}  // namespace

int64_t qk_norm_backward_blocks(int64_t rows) {
  return ceil_div(rows, kRowsPerBlock);
}

namespace cpu {

template <typename T>
void qk_norm_forward(Exec on, const QkNormForward<T>& a) {
  const int64_t width = a.head_dim;
  parallel_ranges(on, a.qkv.dim[0], kRowsPerBlock, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < a.heads + a.kv_heads; ++h) {
        T* x = a.qkv.row(i) + h * width;
        T* raw = a.raw.row(i) + h * width;
        const float* weight = h < a.heads ? a.q_weight.data : a.k_weight.data;
        std::copy(x, x + width, raw);
        f32x16 squares = {};
        for_vectors(width, [&](int64_t d, auto count) {
          const f32x16 v = load(x + d, count);
          squares += v * v;
        });
        const float rstd = 1.0f / std::sqrt(horizontal_sum(squares) / float(width) + a.eps);
        a.rstd.at(i, h) = rstd;
        for_vectors(width, [&](int64_t d, auto count) {
          store(x + d, load(weight + d, count) * (load(x + d, count) * rstd), count);
        });
      }
    }
  });
}

template <typename T>
void qk_norm_backward(Exec on, const QkNormBackward<T>& a) {
  const int64_t rows = a.dqkv.dim[0], width = a.head_dim;
  parallel_ranges(on, rows, kRowsPerBlock, [&](int64_t begin, int64_t end) {
    float* partial = a.partial.row(begin / kRowsPerBlock);
    for (int64_t d = 0; d < 2 * width; ++d) partial[d] = 0;
    for (int64_t i = begin; i < end; ++i) {
      for (int64_t h = 0; h < a.heads + a.kv_heads; ++h) {
        T* dx = a.dqkv.row(i) + h * width;
        const T* raw = a.raw.row(i) + h * width;
        const float* weight = h < a.heads ? a.q_weight.data : a.k_weight.data;
        float* dweight = h < a.heads ? partial : partial + width;
        const float rstd = a.rstd.at(i, h);
        f32x16 dot = {};
        for_vectors(width, [&](int64_t d, auto count) {
          dot += load(weight + d, count) * load(dx + d, count) * (load(raw + d, count) * rstd);
        });
        const float mean = horizontal_sum(dot) / float(width);
        for_vectors(width, [&](int64_t d, auto count) {
          const f32x16 xhat = load(raw + d, count) * rstd, dy = load(dx + d, count);
          store(dweight + d, load(dweight + d, count) + dy * xhat, count);
          store(dx + d, rstd * (load(weight + d, count) * dy - xhat * mean), count);
        });
      }
      update_amax(a.amax, a.dqkv.row(i), (a.heads + a.kv_heads) * width);
    }
  });
  for (int64_t b = 0; b < qk_norm_backward_blocks(rows); ++b) {
    const float* partial = a.partial.row(b);
    for (int64_t d = 0; d < width; ++d) a.dq_weight[d] += partial[d];
    for (int64_t d = 0; d < width; ++d) a.dk_weight[d] += partial[width + d];
  }
}

}  // namespace cpu

template <typename T>
void qk_norm_forward(Exec on, const QkNormForward<T>& a) {
  const ProfileScope timed(on, "qk_norm_forward", qk_norm_forward_cost(a));
  const int64_t normed = a.heads + a.kv_heads;
  CHECK(a.qkv.dim[1] == (normed + a.kv_heads) * a.head_dim && a.raw.dim[0] == a.qkv.dim[0] &&
            a.raw.dim[1] == normed * a.head_dim && a.rstd.dim[0] == a.qkv.dim[0] &&
            a.rstd.dim[1] == normed,
        "qk_norm_forward: %s, %ld + %ld heads of %ld",
        shapes("qkv", a.qkv, "raw", a.raw, "rstd", a.rstd).c_str(), long(a.heads), long(a.kv_heads),
        long(a.head_dim));
  CHECK(a.q_weight.dim[0] == a.head_dim && a.k_weight.dim[0] == a.head_dim,
        "qk_norm_forward: q_weight (%ld), k_weight (%ld), head width %ld", long(a.q_weight.dim[0]),
        long(a.k_weight.dim[0]), long(a.head_dim));
  if (on.gpu) return gpu::qk_norm_forward(on, a);
  cpu::qk_norm_forward(on, a);
}

template <typename T>
void qk_norm_backward(Exec on, const QkNormBackward<T>& a) {
  const ProfileScope timed(on, "qk_norm_backward", qk_norm_backward_cost(a));
  const int64_t normed = a.heads + a.kv_heads;
  CHECK(a.dqkv.dim[1] == (normed + a.kv_heads) * a.head_dim && a.raw.dim[0] == a.dqkv.dim[0] &&
            a.raw.dim[1] == normed * a.head_dim && a.rstd.dim[0] == a.dqkv.dim[0] &&
            a.rstd.dim[1] == normed,
        "qk_norm_backward: %s, %ld + %ld heads of %ld",
        shapes("dqkv", a.dqkv, "raw", a.raw, "rstd", a.rstd).c_str(), long(a.heads),
        long(a.kv_heads), long(a.head_dim));
  CHECK(a.q_weight.dim[0] == a.head_dim && a.k_weight.dim[0] == a.head_dim &&
            a.dq_weight.dim[0] == a.head_dim && a.dk_weight.dim[0] == a.head_dim,
        "qk_norm_backward: %s, head width %ld",
        shapes("q_weight", a.q_weight, "k_weight", a.k_weight, "dq_weight", a.dq_weight,
               "dk_weight", a.dk_weight)
            .c_str(),
        long(a.head_dim));
  CHECK(a.partial.dim[0] >= qk_norm_backward_blocks(a.dqkv.dim[0]) &&
            a.partial.dim[1] == 2 * a.head_dim,
        "qk_norm_backward: %s, head width %ld",
        shapes("partial", a.partial, "dqkv", a.dqkv).c_str(), long(a.head_dim));
  if (on.gpu) return gpu::qk_norm_backward(on, a);
  cpu::qk_norm_backward(on, a);
}

template void qk_norm_forward<float>(Exec, const QkNormForward<float>&);
template void qk_norm_forward<bf16>(Exec, const QkNormForward<bf16>&);
template void qk_norm_backward<float>(Exec, const QkNormBackward<float>&);
template void qk_norm_backward<bf16>(Exec, const QkNormBackward<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(qk_norm_forward, QkNormForward<float>)
ASSAY_GPU_ABSENT(qk_norm_forward, QkNormForward<bf16>)
ASSAY_GPU_ABSENT(qk_norm_backward, QkNormBackward<float>)
ASSAY_GPU_ABSENT(qk_norm_backward, QkNormBackward<bf16>)
}  // namespace gpu

}  // namespace assay
