// What forward and backward attention on the CPU matrix unit share: chains of its products, the
// layouts of their operands, and lines of the next head asked for in time.
#pragma once

#include "ops/cpu_gemm/amx_whole_blocks.h"

#if ASSAY_AMX

#include <bit>

#include "ops/attention/cpu_geometry.h"
#include "ops/cpu_gemm/transpose.h"

namespace assay::attention {

constexpr int kKeySteps = kTile / 2;  // steps of a sum over the queries or keys of a tile

template <int D>
using Shape = Geometry<bf16, D>;

enum class Sums { kFromZero, kContinue };

// c (rows, columns) = or += a (rows, steps) b (steps, columns); strides in words.
struct Tiles {
  float* c;
  int64_t c_stride;
  const uint32_t* a;
  int64_t a_stride;
  const uint32_t* b;
  int64_t b_stride;
};

// Blocks of 32 x 32 sums over kSteps steps. Each begins before the one before it is stored, so that
// the unit does not wait for loads and stores of sums. Calls between() once a block.
template <int kSteps, typename Between>
class BlockChain {
  static_assert(kSteps % amx::kTile == 0);

 public:
  [[gnu::always_inline]] explicit BlockChain(Between between) : between_(between) {}

  // All blocks of c (kRows, kColumns); if skips, not those of the first 32 columns.
  template <int kRows, int kColumns>
  [[gnu::always_inline]] void add(const Tiles& t, Sums sums, bool skips = false) {
    static_assert(kRows % amx::kBlock == 0 && kColumns % amx::kBlock == 0);
    for (int i = 0; i < kRows; i += amx::kBlock) {
      for (int j = skips ? amx::kBlock : 0; j < kColumns; j += amx::kBlock) {
        add_block(t, i, j, sums);
      }
    }
  }
  // Stores the last block. Nothing is computed without it.
  [[gnu::always_inline]] void finish() {
    add_rest();
    amx::store_sums(last_.sums);
  }

 private:
  struct Block {
    const std::byte *a, *b;
    int64_t a_stride, b_stride;  // in bytes
    amx::SumsOfBlock sums;
  };

  [[gnu::always_inline]] void add_block(const Tiles& t, int i, int j, Sums sums) {
    const Block next{.a = reinterpret_cast<const std::byte*>(t.a + i * t.a_stride),
                     .b = reinterpret_cast<const std::byte*>(t.b + j),
                     .a_stride = 4 * t.a_stride,
                     .b_stride = 4 * t.b_stride,
                     .sums = {.at = t.c + i * t.c_stride + j, .stride = 4 * t.c_stride}};
    if (begun_) add_rest();
    amx::compiler_barrier();
    _tile_loadd(6, next.b, next.b_stride);
    _tile_loadd(4, next.a, next.a_stride);
    turn_sum<0>(next, sums);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, next.b + 64, next.b_stride);
    turn_sum<1>(next, sums);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, next.a + amx::kTile * next.a_stride, next.a_stride);
    turn_sum<2>(next, sums);
    _tile_dpbf16ps(2, 5, 6);
    turn_sum<3>(next, sums);
    _tile_dpbf16ps(3, 5, 7);
    begun_ = true;
    last_ = next;
    between_();
  }
  template <int kSum>
  [[gnu::always_inline]] void turn_sum(const Block& next, Sums sums) {
    if (begun_) amx::store_sum<kSum>(last_.sums);
    if (sums == Sums::kFromZero) {
      amx::start_sum<kSum, true>(next.sums);
    } else {
      amx::start_sum<kSum, false>(next.sums);
    }
  }
  // The steps of the last block after the first 16.
  [[gnu::always_inline]] void add_rest() {
    const std::byte *a = last_.a, *b = last_.b;
    for (int step = amx::kTile; step < kSteps; step += amx::kTile) {
      a += 4 * amx::kTile;
      b += amx::kTile * last_.b_stride;
      _tile_loadd(6, b, last_.b_stride);
      _tile_loadd(4, a, last_.a_stride);
      _tile_dpbf16ps(0, 4, 6);
      _tile_loadd(7, b + 64, last_.b_stride);
      _tile_dpbf16ps(1, 4, 7);
      _tile_loadd(5, a + amx::kTile * last_.a_stride, last_.a_stride);
      _tile_dpbf16ps(2, 5, 6);
      _tile_dpbf16ps(3, 5, 7);
    }
  }

  Between between_;
  bool begun_ = false;
  Block last_;
};

// Scores of a tile (keys, queries), without those of a diagonal tile's last 32 keys and first 32
// queries, which see none of them.
template <typename Chain>
[[gnu::always_inline]] inline void add_scores(Chain& chain, Tiles t, bool diagonal) {
  for (int key = 0; key < kTile; key += amx::kBlock) {
    chain.template add<amx::kBlock, kTile>(t, Sums::kFromZero, diagonal && key > 0);
    t.c += amx::kBlock * t.c_stride;
    t.a += amx::kBlock * t.a_stride;
  }
}

// Calls f<First, Masks>(j) for the keys j and j + 1 of a tile: the vectors of queries before First
// see neither of them, and if Masks, those of vector First see them in part.
template <typename F>
[[gnu::always_inline]] inline void for_key_pairs(bool diagonal, F&& f) {
  if (!diagonal) {
    for (int j = 0; j < kTile; j += 2) f.template operator()<0, false>(j);
    return;
  }
  for (int j = 0; j < 16; j += 2) f.template operator()<0, true>(j);
  for (int j = 16; j < 32; j += 2) f.template operator()<1, true>(j);
  for (int j = 32; j < 48; j += 2) f.template operator()<2, true>(j);
  for (int j = 48; j < 64; j += 2) f.template operator()<3, true>(j);
}

// 32 bf16 to a line.
inline void store_line(uint32_t* to, f32x16 low, f32x16 high) {
  const __m512bh both =
      _mm512_cvtne2ps_pbh(std::bit_cast<__m512>(high), std::bit_cast<__m512>(low));
  _mm512_store_si512(to, std::bit_cast<__m512i>(both));
}

// rows[d][step] = element d of the key pair `step`.
template <int D>
void transpose_pairs(uint32_t (*rows)[kKeySteps], const uint32_t (*pairs)[D]) {
  for (int s = 0; s < kKeySteps; s += amx::kTile) {
    for (int d = 0; d < D; d += amx::kTile) {
      panel::transpose_16(&rows[d][s], kKeySteps, reinterpret_cast<const std::byte*>(&pairs[s][d]),
                          4 * D);
    }
  }
}

// Lines of a head's rows (D) in several tensors, asked for into the L2 cache a few at a time among
// other work: the rows of a head are a whole row of all heads apart, which the hardware does not
// foresee, and a core waits for 16 lines at most, which loads from the L2 cache need too. The rows
// need not exist.
template <int D, int Reads, int Writes>
class LinesAhead {
 public:
  // One row in one tensor.
  struct Tensor {
    const bf16* row = nullptr;
    int64_t stride = 0;
  };
  LinesAhead() = default;
  LinesAhead(const Tensor (&tensors)[Reads + Writes], int64_t rows) : left_(rows) {
    for (int i = 0; i < Reads + Writes; ++i) at_[i] = tensors[i];
  }

  // Asks for a row of each tensor: the first ones are going to be read, the others written.
  [[gnu::always_inline]] void ask() {
    if (left_ <= 0) return;
    --left_;
#pragma GCC unroll 8
    for (int i = 0; i < Reads + Writes; ++i) {
      for (int d = 0; d < D; d += kLine) {
        if (i < Reads) {
          __builtin_prefetch(at_[i].row + d, 0, 2);
        } else {
          __builtin_prefetch(at_[i].row + d, 1, 2);
        }
      }
      at_[i].row += at_[i].stride;
    }
  }

 private:
  static constexpr int kLine = 64 / sizeof(bf16);
  Tensor at_[Reads + Writes];
  int64_t left_ = 0;
};

}  // namespace assay::attention

#endif
