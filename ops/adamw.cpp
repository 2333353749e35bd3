#include "ops/adamw.h"

#include <cmath>

#include "base/bf16.h"
#include "base/check.h"
#include "cuda/profile.h"
#include "ops/adamw_constants.h"
#include "ops/gpu_ops.h"

namespace assay {

namespace {

constexpr int64_t kPiece = 16384;

// One pass over five or six streams. kEmit: the weight is written too.
template <bool kEmit, typename T>
void update(int64_t n, const AdamWConstants& s, float scale, const float* __restrict grad,
            float* __restrict master, float* __restrict m, float* __restrict v,
            [[maybe_unused]] T* __restrict weight) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * scale;
    const float first = s.beta1 * m[i] + s.rest1 * g;
    const float second = s.beta2 * v[i] + s.rest2 * (g * g);
    const float step = s.step_size * first / (std::sqrt(second) * s.root_scale + s.eps);
    const float p = master[i] - (s.decay * master[i] + step);
    m[i] = first;
    v[i] = second;
    master[i] = p;
    if constexpr (kEmit) round_to(weight[i], p);
  }
}

}  // namespace

namespace cpu {

template <typename T>
void adamw(Exec on, const AdamW<T>& a) {
  const AdamWConstants s = adamw_constants(a);
  const float scale = a.grad_scale.empty() ? 1.0f : a.grad_scale[0];
  parallel_ranges(on, a.grad.dim[0], kPiece, [&](int64_t begin, int64_t end) {
    const float* grad = a.grad.data + begin;
    float *master = a.master.data + begin, *m = a.m.data + begin, *v = a.v.data + begin;
    if (a.weight.empty()) {
      update<false, T>(end - begin, s, scale, grad, master, m, v, nullptr);
    } else {
      update<true>(end - begin, s, scale, grad, master, m, v, a.weight.data + begin);
    }
  });
}

}  // namespace cpu

template <typename T>
void adamw(Exec on, const AdamW<T>& a) {
  const Timed timed(on, "adamw", adamw_cost(a));
  const int64_t n = a.grad.dim[0];
  CHECK(a.master.dim[0] == n && a.m.dim[0] == n && a.v.dim[0] == n &&
            (a.weight.empty() || a.weight.dim[0] == n) &&
            (a.grad_scale.empty() || a.grad_scale.dim[0] == 1),
        "adamw: grad (%ld), master (%ld), m (%ld), v (%ld), weight (%ld), grad_scale (%ld)",
        long(n), long(a.master.dim[0]), long(a.m.dim[0]), long(a.v.dim[0]), long(a.weight.dim[0]),
        long(a.grad_scale.dim[0]));
  CHECK(a.step >= 1, "adamw: step %ld, the first is 1", long(a.step));
  if (on.gpu) return gpu::adamw(on, a);
  cpu::adamw(on, a);
}

template void adamw<float>(Exec, const AdamW<float>&);
template void adamw<bf16>(Exec, const AdamW<bf16>&);

}  // namespace assay
