#include "ops/checksum.h"

#include <algorithm>
#include <atomic>

#include "base/check.h"
#include "base/hash.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

uint64_t sum_of(const float* x, int64_t count, int64_t first) {
  return hash_floats(x, count, first);
}
// Widened piece by piece.
uint64_t sum_of(const bf16* x, int64_t count, int64_t first) {
  constexpr int64_t kWidened = 1024;
  float wide[kWidened];
  uint64_t sum = 0;
  for (int64_t begin = 0; begin < count; begin += kWidened) {
    const int64_t n = std::min(kWidened, count - begin);
    for (int64_t i = 0; i < n; ++i) wide[i] = float(x[begin + i]);
    sum += hash_floats(wide, n, first + begin);
  }
  return sum;
}

}  // namespace

namespace cpu {

constexpr int64_t kGrain = int64_t{1} << 16;

template <typename T>
void checksum(Exec on, const Checksum<T>& a) {
  std::atomic<uint64_t> sum = 0;
  parallel_ranges(on, a.x.size(), kGrain, [&](int64_t begin, int64_t end) {
    sum += sum_of(a.x.data + begin, end - begin, a.first + begin);
  });
  a.sum[0] = int64_t(sum.load());
}

}  // namespace cpu

template <typename T>
void checksum(Exec on, const Checksum<T>& a) {
  const ProfileScope timed(on, "checksum", checksum_cost(a));
  CHECK(a.sum.dim[0] == 1, "checksum: sum (%ld)", long(a.sum.dim[0]));
  if (on.gpu) return gpu::checksum(on, a);
  cpu::checksum(on, a);
}

template void checksum<float>(Exec, const Checksum<float>&);
template void checksum<bf16>(Exec, const Checksum<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(checksum, Checksum<float>)
ASSAY_GPU_ABSENT(checksum, Checksum<bf16>)
}  // namespace gpu

}  // namespace assay
