#include "ops/adamw.h"

#include <cmath>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/adamw_constants.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

// One pass over n elements. kEmit: the weight is written too. kSquare: sums is a row of
// AdamW::squares.
template <bool kEmit, bool kSquare, typename T>
void update(int64_t n, const AdamWConstants& s, float scale, const float* __restrict grad,
            float* __restrict master, float* __restrict m, float* __restrict v,
            [[maybe_unused]] T* __restrict weight, [[maybe_unused]] double* __restrict sums) {
  [[maybe_unused]] double grads = 0, updates = 0, masters = 0;
#pragma omp simd reduction(+ : grads, updates, masters)
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * scale;
    const float first = s.beta1 * m[i] + s.rest1 * g;
    const float second = s.beta2 * v[i] + s.rest2 * (g * g);
    const float step = s.step_size * first / (std::sqrt(second) * s.root_scale + s.eps);
    const float off = s.decay * master[i] + step;
    const float p = master[i] - off;
    m[i] = first;
    v[i] = second;
    master[i] = p;
    if constexpr (kEmit) round_to(weight[i], p);
    if constexpr (kSquare) {
      grads += double(grad[i]) * double(grad[i]);
      updates += double(off) * double(off);
      masters += double(p) * double(p);
    }
  }
  if constexpr (kSquare) {
    sums[0] = grads;
    sums[1] = updates;
    sums[2] = masters;
  }
}

// Asks for what is updated 4 KB after [begin, end): the hardware stops at the end of a page.
template <typename T>
void prefetch_ahead(const AdamW<T>& a, int64_t begin, int64_t end) {
  constexpr int64_t kAhead = 1024, kLine = 16;  // elements
  for (int64_t i = begin + kAhead; i < end + kAhead; i += kLine) {
    __builtin_prefetch(a.grad.data + i);
    __builtin_prefetch(a.m.data + i, 1);
    __builtin_prefetch(a.v.data + i, 1);
    __builtin_prefetch(a.master.data + i, 1);
  }
}

// Updates elements [begin, end), one row of squares.
template <bool kEmit, bool kSquare, typename T>
void update_piece(const AdamW<T>& a, const AdamWConstants& s, float scale, int64_t begin,
                  int64_t end) {
  constexpr int64_t kTogether = 128;  // with squares all at once: their sums have one order
  for (; !kSquare && end - begin > kTogether; begin += kTogether) {
    prefetch_ahead(a, begin, begin + kTogether);
    update<kEmit, false, T>(kTogether, s, scale, a.grad.data + begin, a.master.data + begin,
                            a.m.data + begin, a.v.data + begin,
                            kEmit ? a.weight.data + begin : nullptr, nullptr);
  }
  update<kEmit, kSquare, T>(end - begin, s, scale, a.grad.data + begin, a.master.data + begin,
                            a.m.data + begin, a.v.data + begin,
                            kEmit ? a.weight.data + begin : nullptr,
                            kSquare ? a.squares.row(begin / kAdamWPiece) : nullptr);
}

}  // namespace

namespace cpu {

template <typename T>
void adamw(Exec on, const AdamW<T>& a) {
  const AdamWConstants s = adamw_constants(a);
  const float scale = a.grad_scale.empty() ? 1.0f : a.grad_scale[0];
  parallel_ranges(on, a.grad.dim[0], kAdamWPiece, [&](int64_t begin, int64_t end) {
    const bool emit = !a.weight.empty(), square = !a.squares.empty();
    if (emit && square) {
      update_piece<true, true>(a, s, scale, begin, end);
    } else if (emit) {
      update_piece<true, false>(a, s, scale, begin, end);
    } else if (square) {
      update_piece<false, true>(a, s, scale, begin, end);
    } else {
      update_piece<false, false>(a, s, scale, begin, end);
    }
  });
}

}  // namespace cpu

template <typename T>
void adamw(Exec on, const AdamW<T>& a) {
  const ProfileScope timed(on, "adamw", adamw_cost(a));
  const int64_t n = a.grad.dim[0];
  CHECK(a.master.dim[0] == n && a.m.dim[0] == n && a.v.dim[0] == n &&
            (a.weight.empty() || a.weight.dim[0] == n) &&
            (a.grad_scale.empty() || a.grad_scale.dim[0] == 1),
        "adamw: %s",
        shapes("grad", a.grad, "master", a.master, "m", a.m, "v", a.v, "weight", a.weight,
               "grad_scale", a.grad_scale)
            .c_str());
  CHECK(a.squares.empty() || (a.squares.dim[0] == adamw_pieces(n) && a.squares.dim[1] == 3),
        "adamw: squares (%ld, %ld) for %ld pieces", long(a.squares.dim[0]), long(a.squares.dim[1]),
        long(adamw_pieces(n)));
  CHECK(a.step >= 1, "adamw: step %ld, must be >= 1", long(a.step));
  if (on.gpu) return gpu::adamw(on, a);
  cpu::adamw(on, a);
}

template void adamw<float>(Exec, const AdamW<float>&);
template void adamw<bf16>(Exec, const AdamW<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(adamw, AdamW<float>)
ASSAY_GPU_ABSENT(adamw, AdamW<bf16>)
}  // namespace gpu

}  // namespace assay
