#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/carry_sum.h"
#include "ops/gpu/elements.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
// Elements that a thread takes in one 16-byte access.
template <typename T>
constexpr int kAtOnce = 16 / int(sizeof(T));

// Each thread owns 16 bytes, accessed element by element if `vectors` is false or past the end.
// Bound by memory: every array is read once, `to` is written once.
template <typename T>
__global__ __launch_bounds__(kThreads) void carry_sum_kernel(const __grid_constant__ CarrySum<T> a,
                                                             const int vectors) {
  constexpr int kN = kAtOnce<T>;
  const int64_t n = a.to.dim[0];
  const int64_t i = (int64_t{blockIdx.x} * kThreads + threadIdx.x) * kN;
  if (vectors && i + kN <= n) {
    auto sum = load_vec<kN>(a.own.data + i);
    for (int l = 0; l < a.carried; ++l) {
      const auto earlier = load_vec<kN>(a.earlier[size_t(l)].data + i);
      for (int e = 0; e < kN; ++e) sum[e] += earlier[e];
    }
    store_whole<kN>(a.to.data + i, sum);
    return;
  }
  for (int64_t j = i; j < i + kN && j < n; ++j) {
    T sum = a.own[j];
    for (int l = 0; l < a.carried; ++l) sum += a.earlier[size_t(l)][j];
    a.to[j] = sum;
  }
}

bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

template <typename T>
void launch_carry_sum(Exec on, const CarrySum<T>& a) {
  if (a.to.dim[0] == 0) return;
  bool vectors = aligned(a.to.data) && aligned(a.own.data);
  for (int l = 0; l < a.carried; ++l) vectors = vectors && aligned(a.earlier[size_t(l)].data);
  launch(on,
         {.name = "carry_sum",
          .grid = {unsigned(ceil_div(a.to.dim[0], int64_t{kThreads} * kAtOnce<T>))},
          .block = {kThreads}},
         carry_sum_kernel<T>, a, int(vectors));
}

}  // namespace

void carry_sum(Exec on, const CarrySum<float>& a) {
  launch_carry_sum(on, a);
}
void carry_sum(Exec on, const CarrySum<int64_t>& a) {
  launch_carry_sum(on, a);
}

}  // namespace assay::gpu
