#include "ops/zero.h"

#include <cstring>

#include "cuda/profile.h"
#include "ops/gpu_ops.h"

namespace assay {

namespace cpu {

constexpr int64_t kGrain = int64_t{1} << 20;

void zero(Exec on, const Zero& a) {
  parallel_ranges(on, a.x.size(), kGrain, [&](int64_t begin, int64_t end) {
    std::memset(a.x.data + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace cpu

void zero(Exec on, const Zero& a) {
  const Timed timed(on, "zero", zero_cost(a));
  if (on.gpu) return gpu::zero(on, a);
  cpu::zero(on, a);
}

}  // namespace assay
