#include "ops/hadamard.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_hadamard.h"
#include "ops/quantise/scale.h"

namespace assay {

namespace {

constexpr int64_t kColumns = 256;  // of a piece, which has 16 rows

}  // namespace

namespace cpu {

template <typename T>
void hadamard(Exec on, const Hadamard<T>& a) {
  const int64_t rows = a.x.dim[0], columns = a.x.dim[1];
  const int64_t across = ceil_div(columns, kColumns);
  std::atomic<uint32_t> most = 0;
  parallel_for(on, ceil_div(rows, kHadamard) * across, [&](int64_t piece) {
    const int64_t r0 = piece / across * kHadamard, c0 = piece % across * kColumns;
    const int64_t n = std::min(kColumns, columns - c0);
    float x[kHadamard][kColumns] = {};
    for (int64_t i = 0; i < std::min<int64_t>(kHadamard, rows - r0); ++i) {
      const T* from = a.x.row(r0 + i) + c0;
      for (int64_t c = 0; c < n; ++c) x[i][c] = float(from[c]);
    }
    hadamard_rows(x, a.signs, a.way);
    uint32_t largest = 0;
    for (int64_t i = 0; i < kHadamard; ++i) {
      T* y = a.y.row(r0 + i) + c0;
#pragma omp simd reduction(max : largest)
      for (int64_t c = 0; c < n; ++c) {
        round_to(y[c], x[i][c]);
        const uint32_t bits = magnitude_bits(float(y[c]));
        largest = bits > largest ? bits : largest;
      }
    }
    uint32_t seen = most.load();
    while (seen < largest && !most.compare_exchange_weak(seen, largest)) {
    }
  });
  if (!a.amax.empty()) a.amax[0] = std::bit_cast<float>(most.load());
}

}  // namespace cpu

template <typename T>
void hadamard(Exec on, const Hadamard<T>& a) {
  const ProfileScope timed(on, "hadamard", hadamard_cost(a));
  CHECK(a.y.dim[0] == round_up(a.x.dim[0], kHadamard) && a.y.dim[1] == a.x.dim[1] &&
            (a.amax.empty() || a.amax.dim[0] == 1),
        "hadamard: %s", shapes("y", a.y, "x", a.x, "amax", a.amax).c_str());
  if (on.gpu) return gpu::hadamard(on, a);
  cpu::hadamard(on, a);
}

template void hadamard(Exec, const Hadamard<float>&);
template void hadamard(Exec, const Hadamard<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(hadamard, Hadamard<float>)
ASSAY_GPU_ABSENT(hadamard, Hadamard<bf16>)
}  // namespace gpu

}  // namespace assay
