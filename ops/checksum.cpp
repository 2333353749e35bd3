#include "ops/checksum.h"

#include <atomic>

#include "base/check.h"
#include "base/hash.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace cpu {

constexpr int64_t kGrain = int64_t{1} << 16;

void checksum(Exec on, const Checksum& a) {
  std::atomic<uint64_t> sum = 0;
  parallel_ranges(on, a.x.size(), kGrain, [&](int64_t begin, int64_t end) {
    sum += hash_floats(a.x.data + begin, end - begin, begin);
  });
  a.sum[0] = int64_t(sum.load());
}

}  // namespace cpu

void checksum(Exec on, const Checksum& a) {
  const ProfileScope timed(on, "checksum", checksum_cost(a));
  CHECK(a.sum.dim[0] == 1, "checksum: sum (%ld)", long(a.sum.dim[0]));
  if (on.gpu) return gpu::checksum(on, a);
  cpu::checksum(on, a);
}

namespace gpu {
ASSAY_GPU_ABSENT(checksum, Checksum)
}  // namespace gpu

}  // namespace assay
