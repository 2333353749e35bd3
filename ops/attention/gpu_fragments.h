// Shared by the bf16 attention kernels: copies to the tiles of ops/gpu/fragments.h, and the
// products and sums of attention on them.
#pragma once

#include <cmath>
#include <cstdint>

#include "cuda/gpu.h"
#include "ops/attention.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/fragments.h"

namespace assay::gpu::attention {

// 1 / sqrt(D)
template <int D>
constexpr float inverse_root() {
  static_assert(D == 32 || D == 64 || D == 128);
  return D == 32 ? 0.176776695f : D == 64 ? 0.125f : 0.0883883476f;
}

template <typename T>
constexpr T smaller(T a, T b) {
  return a < b ? a : b;
}

// Copies rows [0, Rows) of the tile from `first` on, `stride` elements apart; rows from `valid` (at
// least 1) on become zero.
template <int D, int Rows, int Threads>
GPU_DEVICE void copy_rows(bf16* tile, const bf16* first, int stride, int valid) {
  constexpr int kChunks = D / 8, kStep = Threads / kChunks;
  static_assert(Rows % kStep == 0 && kStep % 8 == 0);
  const uint32_t row = threadIdx.x / kChunks, chunk = threadIdx.x % kChunks;
#pragma unroll
  for (int row0 = 0; row0 < Rows; row0 += kStep) {
    const int at = row0 + int(row);
    cp_async16(chunk_of<D>(tile, row0, row, chunk),
               first + (smaller(at, valid - 1) * stride + int(chunk * 8)), at < valid ? 16 : 0);
  }
}

// Source of the A operand of multiply_rows: registers, or a tile if registers are short.
template <int D, int RowTiles>
struct HeldRows {
  uint32_t fragment[RowTiles][D / 16][4];

  GPU_DEVICE void start(const bf16* tile, int row0) {
#pragma unroll
    for (int m = 0; m < RowTiles; ++m) {
#pragma unroll
      for (int step = 0; step < D / 16; ++step)
        load_a<D>(fragment[m][step], tile, row0 + 16 * m, step);
    }
  }
  GPU_DEVICE void get(uint32_t (&a)[4], int m, int step) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) a[i] = fragment[m][step][i];
  }
};
template <int D>
struct TileRows {
  const bf16* tile;
  int row0;

  GPU_DEVICE void start(const bf16* from, int row) {
    tile = from;
    row0 = row;
  }
  GPU_DEVICE void get(uint32_t (&a)[4], int m, int step) const {
    load_a<D>(a, tile, row0 + 16 * m, step);
  }
};

// s[row tile][8 columns] = a . rows row0 .. of the tile, summed over D.
template <int D, typename A, int RowTiles, int N>
GPU_DEVICE void multiply_rows(float (&s)[RowTiles][N][4], const A& rows, const bf16* tile,
                              int row0) {
#pragma unroll
  for (int m = 0; m < RowTiles; ++m) {
#pragma unroll
    for (int n = 0; n < N; ++n) s[m][n][0] = s[m][n][1] = s[m][n][2] = s[m][n][3] = 0;
  }
#pragma unroll
  for (int step = 0; step < D / 16; ++step) {
    uint32_t a[RowTiles][4];
#pragma unroll
    for (int m = 0; m < RowTiles; ++m) rows.get(a[m], m, step);
#pragma unroll
    for (int n = 0; n < N; n += 2) {
      uint32_t b[4];
      load_b_rows<D>(b, tile, row0 + n * 8, step);
#pragma unroll
      for (int m = 0; m < RowTiles; ++m) multiply_two(s[m][n], s[m][n + 1], a[m], b);
    }
  }
}

// out[row tile] += p . rows row0 .. of the tile, summed over 8 N rows. p is rounded to bf16: the
// accumulators of two adjacent products of 8 columns are, lane by lane, the A operand of a product
// over those 16.
template <int D, int RowTiles, int N>
GPU_DEVICE void add_weighted_rows(float (&out)[RowTiles][D / 8][4],
                                  const float (&p)[RowTiles][N][4], const bf16* tile, int row0) {
#pragma unroll
  for (int n = 0; n < N; n += 2) {
    uint32_t a[RowTiles][4];
#pragma unroll
    for (int m = 0; m < RowTiles; ++m) {
      a[m][0] = pack_bf16(p[m][n][0], p[m][n][1]);
      a[m][1] = pack_bf16(p[m][n][2], p[m][n][3]);
      a[m][2] = pack_bf16(p[m][n + 1][0], p[m][n + 1][1]);
      a[m][3] = pack_bf16(p[m][n + 1][2], p[m][n + 1][3]);
    }
#pragma unroll
    for (int d = 0; d < D / 8; d += 2) {
      uint32_t b[4];
      load_b_columns<D>(b, tile, row0 + n * 8, d / 2);
#pragma unroll
      for (int m = 0; m < RowTiles; ++m) multiply_two(out[m][d], out[m][d + 1], a[m], b);
    }
  }
}

// Element i of the 8-column product n, for the accumulators of mma.sync and of wgmma, which has all
// in one array.
template <int N>
GPU_DEVICE float& element(float (&s)[N][4], int n, int i) {
  return s[n][i];
}
template <int Size>
GPU_DEVICE float& element(float (&s)[Size], int n, int i) {
  return s[4 * n + i];
}

// Online softmax of a row of scores against a tile of 8 N keys, in base 2: updates the maximum and
// the sum, turns the scores into probabilities (not yet divided by their sum) and returns the
// factor for earlier sums. A lane holds a quarter of each of two rows, selected by `half`; `sum`
// covers its own quarter.
template <int N, typename Scores>
GPU_DEVICE float soften(Scores& s, int half, float scale, float& top, float& sum) {
  float largest = -INFINITY;
#pragma unroll
  for (int n = 0; n < N; ++n) {
    largest = fmaxf(largest, fmaxf(element(s, n, 2 * half), element(s, n, 2 * half + 1)));
  }
  largest = fmaxf(top, warp_max(largest, kAccumLanes) * scale);
  const float factor = exp2_approx(top - largest);
  top = largest;
  sum *= factor;
#pragma unroll
  for (int n = 0; n < N; ++n) {
#pragma unroll
    for (int i = 2 * half; i < 2 * half + 2; ++i) {
      float& x = element(s, n, i);
      x = exp2_approx(fmaf(x, scale, -largest));
      sum += x;
    }
  }
  return factor;
}

// Turns dq or dk of a warp's 16 rows back by RoPE, if there is a table: columns d and d + D / 2 are
// in the same lane. `first`: position of the warp's first row. Rows past the sequence, which are
// not stored, take the angles of its last.
template <int D, typename Sums>
GPU_DEVICE void turn_back(Sums& x, const AttentionBackward<bf16>& a, int first) {
  if (a.cos.empty()) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int t = smaller(first + accum_row(2 * half), int(a.sequence) - 1);
    const float *cos = a.cos.row(t), *sin = a.sin.row(t);
#pragma unroll
    for (int n = 0; n < D / 16; ++n) {
      const auto c = load_vec<2>(cos + accum_column(4 * n));
      const auto s = load_vec<2>(sin + accum_column(4 * n));
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float& low = element(x, n, 2 * half + e);
        float& high = element(x, n + D / 16, 2 * half + e);
        const float turned = low * c[e] + high * s[e];
        high = high * c[e] - low * s[e];
        low = turned;
      }
    }
  }
}

// Scales a warp's 16 rows (separate factors for the upper and the lower eight), rounds them and
// stores them, 16 bytes per lane, through its 16 rows of a tile, which no other warp needs. Rows
// from `valid` on are not written. If *amax is given, it is raised to the largest magnitude
// written.
template <int D>
GPU_DEVICE void store_rows(bf16* first, int stride, int valid, bf16* tile,
                           const float (&d)[D / 8][4], float upper, float lower,
                           float* amax = nullptr) {
  // accum_row(0) and half of accum_column(0), unsigned as chunk_of: signed takes more instructions.
  const uint32_t l = uint32_t(lane()), g = l / kAccumLanes, t = l % kAccumLanes;
  sync_warp();
#pragma unroll
  for (int n = 0; n < D / 8; ++n) {
    *reinterpret_cast<uint32_t*>(chunk_of<D>(tile, 0, g, n) + 2 * t) =
        pack_bf16(d[n][0] * upper, d[n][1] * upper);
    *reinterpret_cast<uint32_t*>(chunk_of<D>(tile, 8, g, n) + 2 * t) =
        pack_bf16(d[n][2] * lower, d[n][3] * lower);
  }
  sync_warp();
  AmaxAccumulator most{amax};
#pragma unroll
  for (int i = 0; i < D / 16; ++i) {
    const uint32_t item = i * kWarp + l, row = item / (D / 8), chunk = item % (D / 8);
    if (int(row) < valid) {
      const auto pairs =
          load_vec<4>(reinterpret_cast<const uint32_t*>(chunk_of<D>(tile, 0, row, chunk)));
      store_vec(reinterpret_cast<uint32_t*>(first + (int(row) * stride + int(chunk * 8))), pairs);
      most.take(pairs);
    }
  }
  most.raise_of_warp<bf16>();
}

}  // namespace assay::gpu::attention
