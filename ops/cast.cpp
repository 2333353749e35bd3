#include "ops/cast.h"

#include "base/check.h"
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

}  // namespace cpu

template <typename To, typename From>
void cast(Exec on, const Cast<To, From>& a) {
  const ProfileScope timed(on, "cast", cast_cost(a));
  CHECK(a.y.dim[0] == a.x.dim[0], "cast: y (%ld), x (%ld)", long(a.y.dim[0]), long(a.x.dim[0]));
  if (on.gpu) return gpu::cast(on, a);
  cpu::cast(on, a);
}

template void cast<bf16, float>(Exec, const Cast<bf16, float>&);
template void cast<float, bf16>(Exec, const Cast<float, bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(cast, Cast<bf16, float>)
ASSAY_GPU_ABSENT(cast, Cast<float, bf16>)
}  // namespace gpu

}  // namespace assay
