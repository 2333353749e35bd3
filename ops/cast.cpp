#include "ops/cast.h"

#include <algorithm>

#include "base/check.h"
#include "base/random_lanes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

constexpr int64_t kPiece = 16384;

}  // namespace

namespace cpu {

template <typename To, typename From>
void cast(Exec on, const Cast<To, From>& a) {
  parallel_ranges(on, a.x.dim[0], kPiece, [&](int64_t begin, int64_t end) {
    const From* x = a.x.data;
    To* y = a.y.data;
#pragma omp simd
    for (int64_t i = begin; i < end; ++i) round_to(y[i], float(x[i]));
  });
}

void cast_stochastic(Exec on, const CastStochastic& a) {
  parallel_ranges(on, a.x.dim[0], kPiece, [&](int64_t begin, int64_t end) {
    uint16_t half[kHalvesDrawn];
    for (int64_t i = begin; i < end;) {
      const int64_t at = (a.first + i) % kHalvesDrawn;
      draw_halves(a.key, static_cast<uint64_t>((a.first + i - at) / 8), half);
      const int64_t n = std::min(end - i, kHalvesDrawn - at);
      const float* x = a.x.data + i;
      bf16* y = a.y.data + i;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) y[j].bits = bf16::stochastic(x[j], half[at + j]).bits;
      i += n;
    }
  });
}

}  // namespace cpu

template <typename To, typename From>
void cast(Exec on, const Cast<To, From>& a) {
  const ProfileScope timed(on, "cast", cast_cost(a));
  CHECK(a.y.dim[0] == a.x.dim[0], "cast: y (%ld), x (%ld)", long(a.y.dim[0]), long(a.x.dim[0]));
  if (on.gpu) return gpu::cast(on, a);
  cpu::cast(on, a);
}

void cast_stochastic(Exec on, const CastStochastic& a) {
  const ProfileScope timed(on, "cast_stochastic", cast_stochastic_cost(a));
  CHECK(a.y.dim[0] == a.x.dim[0] && a.first >= 0, "cast_stochastic: y (%ld), x (%ld), first %ld",
        long(a.y.dim[0]), long(a.x.dim[0]), long(a.first));
  if (on.gpu) return gpu::cast_stochastic(on, a);
  cpu::cast_stochastic(on, a);
}

template void cast<bf16, float>(Exec, const Cast<bf16, float>&);
template void cast<float, bf16>(Exec, const Cast<float, bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(cast, Cast<bf16, float>)
ASSAY_GPU_ABSENT(cast, Cast<float, bf16>)
ASSAY_GPU_ABSENT(cast_stochastic, CastStochastic)
}  // namespace gpu

}  // namespace assay
