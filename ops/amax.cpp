#include "ops/amax.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/math.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_amax.h"
#include "ops/quantise/cpu_hadamard.h"
#include "ops/quantise/scale.h"

namespace assay {

namespace {

constexpr int64_t kColumns = 256;  // of a piece, which has 16 rows
using Rows = float[kHadamard][kColumns];

uint32_t largest(const Rows& x) {
  return largest_bits(&x[0][0], kHadamard * kColumns);
}

}  // namespace

namespace cpu {

template <typename T>
void amax(Exec on, const Amax<T>& a) {
  const int64_t rows = a.x.dim[0], columns = a.x.dim[1];
  const int64_t across = ceil_div(columns, kColumns);
  std::atomic<uint32_t> most = 0, most_rotated = 0;
  parallel_for(on, ceil_div(rows, kHadamard) * across, [&](int64_t piece) {
    const int64_t r0 = piece / across * kHadamard, c0 = piece % across * kColumns;
    const int64_t n = std::min(kColumns, columns - c0);
    Rows x = {};
    for (int64_t r = r0; r < std::min(rows, r0 + kHadamard); ++r) {
      const T* from = a.x.row(r) + c0;
      for (int64_t c = 0; c < n; ++c) x[r - r0][c] = float(from[c]);
    }
    raise_to(most, largest(x));
    if (a.rotated.empty()) return;
    hadamard_rows(x, a.signs);
    raise_to(most_rotated, largest(x));
  });
  a.amax[0] = std::bit_cast<float>(most.load());
  if (!a.rotated.empty()) a.rotated[0] = std::bit_cast<float>(most_rotated.load());
}

}  // namespace cpu

template <typename T>
void amax(Exec on, const Amax<T>& a) {
  const ProfileScope timed(on, "amax", amax_cost(a));
  CHECK(a.amax.dim[0] == 1 && (a.rotated.empty() || a.rotated.dim[0] == 1),
        "amax: amax (%ld), rotated (%ld)", long(a.amax.dim[0]), long(a.rotated.dim[0]));
  if (on.gpu) return gpu::amax(on, a);
  cpu::amax(on, a);
}

template void amax(Exec, const Amax<float>&);
template void amax(Exec, const Amax<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(amax, Amax<float>)
ASSAY_GPU_ABSENT(amax, Amax<bf16>)
}  // namespace gpu

}  // namespace assay
