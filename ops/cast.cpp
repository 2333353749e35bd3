#include "ops/cast.h"

#include "base/check.h"
#include "cuda/profile.h"

namespace assay {

namespace {

constexpr int64_t kPiece = 16384;  // a multiple of kDraw
constexpr int64_t kDraw = 8;       // roundings from one block of the generator

uint32_t half_word(const std::array<uint32_t, 4>& words, int64_t element) {
  return (words[size_t(element % kDraw) / 2] >> (element % 2 * 16)) & 0xFFFFu;
}

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
    for (int64_t i = begin; i < end;) {
      const int64_t element = a.first + i;
      const auto words = random_block(a.key, uint64_t(element / kDraw));
      const int64_t last = std::min(end, i + kDraw - element % kDraw);
      for (; i < last; ++i) a.y[i] = bf16::stochastic(a.x[i], half_word(words, a.first + i));
    }
  });
}

}  // namespace cpu

template <typename To, typename From>
void cast(Exec on, const Cast<To, From>& a) {
  const Timed timed(on, "cast", cast_cost(a));
  CHECK(a.y.dim[0] == a.x.dim[0], "cast: y (%ld), x (%ld)", long(a.y.dim[0]), long(a.x.dim[0]));
  cpu::cast(on, a);
}

void cast_stochastic(Exec on, const CastStochastic& a) {
  const Timed timed(on, "cast_stochastic", cast_stochastic_cost(a));
  CHECK(a.y.dim[0] == a.x.dim[0] && a.first >= 0, "cast_stochastic: y (%ld), x (%ld), first %ld",
        long(a.y.dim[0]), long(a.x.dim[0]), long(a.first));
  cpu::cast_stochastic(on, a);
}

template void cast<bf16, float>(Exec, const Cast<bf16, float>&);
template void cast<float, bf16>(Exec, const Cast<float, bf16>&);

}  // namespace assay
