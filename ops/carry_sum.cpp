#include "ops/carry_sum.h"

#include <algorithm>

#include "base/check.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

constexpr int64_t kPiece = 16384;
constexpr int64_t kBlock = 512;  // elements whose sums stay in registers and the first cache

}  // namespace

namespace cpu {

template <typename T>
void carry_sum(Exec on, const CarrySum<T>& a) {
  parallel_ranges(on, a.to.dim[0], kPiece, [&](int64_t begin, int64_t end) {
    T sum[kBlock];
    for (int64_t at = begin; at < end; at += kBlock) {
      const int64_t n = std::min(kBlock, end - at);
      const T* own = a.own.data + at;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) sum[i] = own[i];
      for (int l = 0; l < a.carried; ++l) {
        const T* earlier = a.earlier[size_t(l)].data + at;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) sum[i] += earlier[i];
      }
      T* to = a.to.data + at;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) to[i] = sum[i];
    }
  });
}

}  // namespace cpu

template <typename T>
void carry_sum(Exec on, const CarrySum<T>& a) {
  const ProfileScope timed(on, "carry_sum", carry_sum_cost(a));
  CHECK(a.to.dim[0] == a.own.dim[0] && a.carried >= 0 && a.carried <= kMostCarried,
        "carry_sum: to (%ld), own (%ld), %d carried", long(a.to.dim[0]), long(a.own.dim[0]),
        a.carried);
  for (int l = 0; l < a.carried; ++l) {
    CHECK(a.earlier[size_t(l)].dim[0] == a.to.dim[0], "carry_sum: earlier[%d] (%ld), to (%ld)", l,
          long(a.earlier[size_t(l)].dim[0]), long(a.to.dim[0]));
  }
  if (on.gpu) return gpu::carry_sum(on, a);
  cpu::carry_sum(on, a);
}

template void carry_sum<float>(Exec, const CarrySum<float>&);
template void carry_sum<int64_t>(Exec, const CarrySum<int64_t>&);

namespace gpu {
ASSAY_GPU_ABSENT(carry_sum, CarrySum<float>)
ASSAY_GPU_ABSENT(carry_sum, CarrySum<int64_t>)
}  // namespace gpu

}  // namespace assay
