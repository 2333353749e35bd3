#include "ops/zero.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__)
#include <immintrin.h>
#endif

#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace cpu {

constexpr int64_t kGrain = int64_t{1} << 20;
// Above this many bytes no core's cache keeps the zeros until they are read.
constexpr int64_t kBeyondCaches = int64_t{16} << 20;

// Bypasses the caches: an ordinary store reads every line first.
void stream_zeros(std::byte* p, int64_t bytes) {
#if defined(__AVX512F__)
  const int64_t head = std::min(bytes, int64_t(-reinterpret_cast<uintptr_t>(p) % 64));
  std::memset(p, 0, static_cast<size_t>(head));
  int64_t i = head;
  for (; i + 64 <= bytes; i += 64) {
    _mm512_stream_si512(reinterpret_cast<__m512i*>(p + i), _mm512_setzero_si512());
  }
  _mm_sfence();
  std::memset(p + i, 0, static_cast<size_t>(bytes - i));
#else
  std::memset(p, 0, static_cast<size_t>(bytes));
#endif
}

void zero(Exec on, const Zero& a) {
  const bool large = a.x.size() > kBeyondCaches;
  parallel_ranges(on, a.x.size(), kGrain, [&](int64_t begin, int64_t end) {
    if (large) return stream_zeros(a.x.data + begin, end - begin);
    std::memset(a.x.data + begin, 0, static_cast<size_t>(end - begin));
  });
}

}  // namespace cpu

void zero(Exec on, const Zero& a) {
  const ProfileScope timed(on, "zero", zero_cost(a));
  if (on.gpu) return gpu::zero(on, a);
  cpu::zero(on, a);
}

namespace gpu {
ASSAY_GPU_ABSENT(zero, Zero)
}  // namespace gpu

}  // namespace assay
