#include "ops/adamw_bf16.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/random_lanes.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/adamw_constants.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

static_assert(kAdamWPiece % kHalvesDrawn == 0);

// The random bits of kHalvesDrawn elements.
struct Draws {
  uint16_t weight[kHalvesDrawn], m[kHalvesDrawn], v[kHalvesDrawn];

  Draws(const RandomKey& key, int64_t begin) {
    const uint64_t block = kAdamWRounded * uint64_t(begin / kAdamWDraw);
    draw_halves(key, block, weight, kAdamWRounded);
    draw_halves(key, block + 1, m, kAdamWRounded);
    draw_halves(key, block + 2, v, kAdamWRounded);
  }
};

struct Sums {
  double grads = 0, updates = 0, weights = 0;
};

// One pass over n <= kHalvesDrawn elements.
template <bool kSquare>
void update(int64_t n, const AdamWConstants& s, float scale, const Draws& draws,
            const float* __restrict grad, bf16* __restrict weight, bf16* __restrict m,
            bf16* __restrict v, Sums& sums) {
  [[maybe_unused]] double grads = 0, updates = 0, weights = 0;
#pragma omp simd reduction(+ : grads, updates, weights)
  for (int64_t i = 0; i < n; ++i) {
    const float g = grad[i] * scale;
    const float first = s.beta1 * float(m[i]) + s.rest1 * g;
    const float second = s.beta2 * float(v[i]) + s.rest2 * (g * g);
    const float step = s.step_size * first / (std::sqrt(second) * s.root_scale + s.eps);
    const float before = float(weight[i]);
    const float off = s.decay * before + step;
    m[i].bits = bf16::stochastic(first, draws.m[i]).bits;
    v[i].bits = bf16::stochastic(second, draws.v[i]).bits;
    const uint16_t after = bf16::stochastic(before - off, draws.weight[i]).bits;
    weight[i].bits = after;
    if constexpr (kSquare) {
      const double p = double(std::bit_cast<float>(uint32_t{after} << 16));
      grads += double(grad[i]) * double(grad[i]);
      updates += double(off) * double(off);
      weights += p * p;
    }
  }
  if constexpr (kSquare) {
    sums.grads += grads;
    sums.updates += updates;
    sums.weights += weights;
  }
}

// Updates elements [begin, end), one row of squares.
template <bool kSquare>
void update_piece(const AdamWBf16& a, const AdamWConstants& s, float scale, int64_t begin,
                  int64_t end) {
  Sums sums;
  for (int64_t i = begin; i < end; i += kHalvesDrawn) {
    update<kSquare>(std::min(kHalvesDrawn, end - i), s, scale, Draws(a.key, a.first + i),
                    a.grad.data + i, a.weight.data + i, a.m.data + i, a.v.data + i, sums);
  }
  if constexpr (kSquare) {
    double* const row = a.squares.row(begin / kAdamWPiece);
    row[0] = sums.grads;
    row[1] = sums.updates;
    row[2] = sums.weights;
  }
}

}  // namespace

namespace cpu {

void adamw_bf16(Exec on, const AdamWBf16& a) {
  const AdamWConstants s = adamw_constants(a);
  const float scale = a.grad_scale.empty() ? 1.0f : a.grad_scale[0];
  parallel_ranges(on, a.grad.dim[0], kAdamWPiece, [&](int64_t begin, int64_t end) {
    if (a.squares.empty()) {
      update_piece<false>(a, s, scale, begin, end);
    } else {
      update_piece<true>(a, s, scale, begin, end);
    }
  });
}

}  // namespace cpu

void adamw_bf16(Exec on, const AdamWBf16& a) {
  const ProfileScope timed(on, "adamw_bf16", adamw_bf16_cost(a));
  const int64_t n = a.grad.dim[0];
  CHECK(a.weight.dim[0] == n && a.m.dim[0] == n && a.v.dim[0] == n &&
            (a.grad_scale.empty() || a.grad_scale.dim[0] == 1),
        "adamw_bf16: %s",
        shapes("grad", a.grad, "weight", a.weight, "m", a.m, "v", a.v, "grad_scale", a.grad_scale)
            .c_str());
  CHECK(a.first >= 0 && a.first % kAdamWDraw == 0, "adamw_bf16: first %ld", long(a.first));
  CHECK(a.squares.empty() || (a.squares.dim[0] == adamw_pieces(n) && a.squares.dim[1] == 3),
        "adamw_bf16: squares (%ld, %ld) for %ld pieces", long(a.squares.dim[0]),
        long(a.squares.dim[1]), long(adamw_pieces(n)));
  CHECK(a.step >= 1, "adamw_bf16: step %ld, must be >= 1", long(a.step));
  if (on.gpu) return gpu::adamw_bf16(on, a);
  cpu::adamw_bf16(on, a);
}

namespace gpu {
ASSAY_GPU_ABSENT(adamw_bf16, AdamWBf16)
}  // namespace gpu

}  // namespace assay
