#include "ops/rope.h"

#include <cmath>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_amax.h"

namespace assay {

namespace {

constexpr int64_t kRowsPerPiece = 32;

// Rotates every head of q and k by the row's angle, or by its negative (sign = -1).
template <typename T>
struct Rotation {
  View<T, 2> rows;
  View<const float, 2> cos, sin;
  int64_t rotated_heads, head_dim, sequence;
  float sign;
  View<const int32_t, 1> position = {};
  View<float, 1> amax = {};
};

template <typename T>
void rotate(Exec on, const Rotation<T>& a) {
  const int64_t half = a.head_dim / 2;
  parallel_ranges(on, a.rows.dim[0], kRowsPerPiece, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t t = a.position.empty() ? i % a.sequence : a.position[i];
      const float *cos = a.cos.row(t), *sin = a.sin.row(t);
      T* low = a.rows.row(i);
      for (int64_t h = 0; h < a.rotated_heads; ++h, low += a.head_dim) {
        T* high = low + half;
        for_vectors(half, [&](int64_t d, auto count) {
          const f32x16 x = load(low + d, count), y = load(high + d, count);
          const f32x16 c = load(cos + d, count), s = a.sign * load(sin + d, count);
          store(low + d, x * c - y * s, count);
          store(high + d, y * c + x * s, count);
        });
      }
      update_amax(a.amax, a.rows.row(i), a.rotated_heads * a.head_dim);
    }
  });
}

template <typename T>
void check(const char* op, const Rotation<T>& a, int64_t heads, int64_t kv_heads) {
  CHECK(a.rows.dim[1] == (heads + 2 * kv_heads) * a.head_dim && a.head_dim % 2 == 0,
        "%s: rows of %ld, %ld heads, %ld kv heads of width %ld", op, long(a.rows.dim[1]),
        long(heads), long(kv_heads), long(a.head_dim));
  const int64_t rows = a.rows.dim[0];
  CHECK(a.sequence > 0 && (a.position.empty() ? rows % a.sequence == 0 : a.position.dim[0] == rows),
        "%s: %ld rows in sequences of %ld, %ld positions", op, long(rows), long(a.sequence),
        long(a.position.dim[0]));
  CHECK(a.cos.dim[0] >= a.sequence && a.sin.dim[0] >= a.sequence &&
            a.cos.dim[1] == a.head_dim / 2 && a.sin.dim[1] == a.head_dim / 2,
        "%s: %s for %ld positions of width %ld", op, shapes("cos", a.cos, "sin", a.sin).c_str(),
        long(a.sequence), long(a.head_dim));
}

}  // namespace

template <typename T>
void rope_forward(Exec on, const RopeForward<T>& a) {
  const ProfileScope timed(on, "rope_forward", rope_forward_cost(a));
  const Rotation<T> rotation{a.qkv,      a.cos,      a.sin, a.heads + a.kv_heads,
                             a.head_dim, a.sequence, 1.0f,  a.position};
  check("rope_forward", rotation, a.heads, a.kv_heads);
  if (on.gpu) return gpu::rope_forward(on, a);
  rotate(on, rotation);
}

template <typename T>
void rope_backward(Exec on, const RopeBackward<T>& a) {
  const ProfileScope timed(on, "rope_backward", rope_backward_cost(a));
  const Rotation<T> rotation{a.dqkv, a.cos, a.sin, a.heads + a.kv_heads, a.head_dim, a.sequence,
                             -1.0f,  {},    a.amax};
  check("rope_backward", rotation, a.heads, a.kv_heads);
  if (on.gpu) return gpu::rope_backward(on, a);
  rotate(on, rotation);
}

void rope_table(View<float, 2> cos, View<float, 2> sin, double theta) {
  const int64_t half = cos.dim[1];
  for (int64_t t = 0; t < cos.dim[0]; ++t) {
    for (int64_t d = 0; d < half; ++d) {
      const double angle = double(t) * std::pow(theta, -double(d) / double(half));
      cos.at(t, d) = float(std::cos(angle));
      sin.at(t, d) = float(std::sin(angle));
    }
  }
}

template void rope_forward<float>(Exec, const RopeForward<float>&);
template void rope_forward<bf16>(Exec, const RopeForward<bf16>&);
template void rope_backward<float>(Exec, const RopeBackward<float>&);
template void rope_backward<bf16>(Exec, const RopeBackward<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(rope_forward, RopeForward<float>)
ASSAY_GPU_ABSENT(rope_forward, RopeForward<bf16>)
ASSAY_GPU_ABSENT(rope_backward, RopeBackward<float>)
ASSAY_GPU_ABSENT(rope_backward, RopeBackward<bf16>)
}  // namespace gpu

}  // namespace assay
