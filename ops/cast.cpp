#include "ops/cast.h"

#include <algorithm>

#include "base/check.h"
#include "cuda/profile.h"
#include "ops/gpu_ops.h"

namespace assay {

namespace {

constexpr int64_t kPiece = 16384;
constexpr int64_t kBlocks = 16;          // of the generator, drawn together, one a lane
constexpr int64_t kDrawn = 8 * kBlocks;  // half words in them

// half[i]: half word i of blocks first_block, first_block + 1, ...: random_block (base/random.h), a lane a block.
void draw(const RandomKey& key, uint64_t first_block, uint16_t (&half)[kDrawn]) {
  uint32_t c0[kBlocks], c1[kBlocks], c2[kBlocks], c3[kBlocks];
  for (int64_t j = 0; j < kBlocks; ++j) {
    const uint64_t block = first_block + static_cast<uint64_t>(j);
    c0[j] = static_cast<uint32_t>(block);
    c1[j] = static_cast<uint32_t>(block >> 32);
    c2[j] = static_cast<uint32_t>(key.stream);
    c3[j] = static_cast<uint32_t>(key.stream >> 32);
  }
  const uint64_t k = key.seed + uint64_t{key.step} * 0x9E3779B97F4A7C15u;
  uint32_t k0 = static_cast<uint32_t>(k), k1 = static_cast<uint32_t>(k >> 32);
  for (int round = 0; round < 10; ++round) {
#pragma omp simd
    for (int64_t j = 0; j < kBlocks; ++j) {
      const uint64_t a = uint64_t{0xD2511F53u} * c0[j];
      const uint64_t b = uint64_t{0xCD9E8D57u} * c2[j];
      c0[j] = static_cast<uint32_t>(b >> 32) ^ c1[j] ^ k0;
      c1[j] = static_cast<uint32_t>(b);
      c2[j] = static_cast<uint32_t>(a >> 32) ^ c3[j] ^ k1;
      c3[j] = static_cast<uint32_t>(a);
    }
    k0 += 0x9E3779B9u;
    k1 += 0xBB67AE85u;
  }
  for (int64_t j = 0; j < kBlocks; ++j) {
    const uint32_t words[4] = {c0[j], c1[j], c2[j], c3[j]};
    for (int64_t h = 0; h < 8; ++h) {
      half[8 * j + h] = static_cast<uint16_t>(words[h / 2] >> (h % 2 * 16));
    }
  }
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
    uint16_t half[kDrawn];
    for (int64_t i = begin; i < end;) {
      const int64_t at = (a.first + i) % kDrawn;
      draw(a.key, static_cast<uint64_t>((a.first + i - at) / 8), half);
      const int64_t n = std::min(end - i, kDrawn - at);
      const float* x = a.x.data + i;
      bf16* y = a.y.data + i;
#pragma omp simd
      for (int64_t j = 0; j < n; ++j) y[j].bits = bf16::stochastic(x[j], half[at + j]).bits;
      i += n;
    }
  });
}

}  // namespace cpu

template <typename To, typename From>
void cast(Exec on, const Cast<To, From>& a) {
  const Timed timed(on, "cast", cast_cost(a));
  CHECK(a.y.dim[0] == a.x.dim[0], "cast: y (%ld), x (%ld)", long(a.y.dim[0]), long(a.x.dim[0]));
  if (on.gpu) return gpu::cast(on, a);
  cpu::cast(on, a);
}

void cast_stochastic(Exec on, const CastStochastic& a) {
  const Timed timed(on, "cast_stochastic", cast_stochastic_cost(a));
  CHECK(a.y.dim[0] == a.x.dim[0] && a.first >= 0, "cast_stochastic: y (%ld), x (%ld), first %ld",
        long(a.y.dim[0]), long(a.x.dim[0]), long(a.first));
  if (on.gpu) return gpu::cast_stochastic(on, a);
  cpu::cast_stochastic(on, a);
}

template void cast<bf16, float>(Exec, const Cast<bf16, float>&);
template void cast<float, bf16>(Exec, const Cast<float, bf16>&);

}  // namespace assay
