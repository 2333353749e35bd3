// Grouped GEMM without tensor cores: float, and bf16 if rows are not multiples of 16 bytes. The
// roles of a, b and c are those of ops/grouped/gpu_mainloop.h.
#pragma once

#include <algorithm>

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/grouped/gpu_mainloop.h"
#include "ops/grouped/gpu_work_list.h"

namespace assay::gpu {

constexpr int kPlainTile = 64;
constexpr int kPlainK = 16;
constexpr int kPlainThreads = 256;
static_assert(kPlainTile >= kGroupedSmallestTile);

template <typename T>
struct GroupedPlainArgs {
  T* c = nullptr;                // (A, n)
  float* dweight = nullptr;      // (E, m, n)   for wgrad, instead of c
  const T* a;                    // (rows, k); wgrad: (A, m)
  const T* b;                    // (E, n, k), dgrad (E, k, n); wgrad: (rows, n)
  const int32_t* row = nullptr;  // (A), for a in forward, for b in wgrad; null: in order
  GroupedParts work;
  int m = 0;  // for wgrad
  int n;
  int k = 0;  // not for wgrad
  ProductScale scale = {};
};

// Element (r, k) of a, or (k, c) of b, for this part; 0 outside.
template <GroupedKind Kind, typename T>
GPU_DEVICE float plain_a(const GroupedPlainArgs<T>& g, const GroupedPart& part, int r, int k) {
  if constexpr (Kind == GroupedKind::kWgrad) {
    return r < g.m && k < part.rows ? float(g.a[int64_t{part.begin + k} * g.m + r]) : 0.0f;
  } else {
    if (r >= part.rows || k >= g.k) return 0.0f;
    const int at = part.begin + r;
    return float(g.a[int64_t{g.row ? g.row[at] : at} * g.k + k]);
  }
}
template <GroupedKind Kind, typename T>
GPU_DEVICE float plain_b(const GroupedPlainArgs<T>& g, const GroupedPart& part, int k, int c) {
  if (c >= g.n) return 0.0f;
  if constexpr (Kind == GroupedKind::kWgrad) {
    if (k >= part.rows) return 0.0f;
    const int at = part.begin + k;
    return float(g.b[int64_t{g.row ? g.row[at] : at} * g.n + c]);
  } else {
    if (k >= g.k) return 0.0f;
    const T* const weight = g.b + int64_t{part.expert} * g.n * g.k;
    return float(Kind == GroupedKind::kForward ? weight[int64_t{c} * g.k + k]
                                               : weight[int64_t{k} * g.n + c]);
  }
}

// Each block owns 64 x 64 tiles of c, each thread 4 x 4 elements, summed over k in order. Bound by
// shared memory reads: 32 bytes per 16 products.
template <typename T, GroupedKind Kind>
__global__ __launch_bounds__(kPlainThreads) void grouped_plain_kernel(
    const __grid_constant__ GroupedPlainArgs<T> g) {
  GPU_SHARED(float, a_tile, [kPlainK][kPlainTile + 4]);
  GPU_SHARED(float, b_tile, [kPlainK][kPlainTile + 4]);
  // Adjacent threads load adjacent elements of memory: along k, or along the side of the tile.
  constexpr bool kAAlongK = Kind != GroupedKind::kWgrad, kBAlongK = Kind == GroupedKind::kForward;
  const int thread = int(threadIdx.x), row0 = thread / 16 * 4, column0 = thread % 16 * 4;
  const int across = ceil_div(g.n, kPlainTile);
  const int of_part = across * (Kind == GroupedKind::kWgrad ? ceil_div(g.m, kPlainTile) : 1);
  const int64_t tiles = int64_t{*g.work.count} * of_part;
  const float scale = g.scale.factor();
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const GroupedPart part = g.work.parts[t / of_part];
    const int within = int(t % of_part);
    const int m = within / across * kPlainTile, n = within % across * kPlainTile;
    const int depth = Kind == GroupedKind::kWgrad ? part.rows : g.k;
    float acc[4][4] = {};

    // Main loop.
    for (int k0 = 0; k0 < depth; k0 += kPlainK) {
      for (int i = thread; i < kPlainTile * kPlainK; i += kPlainThreads) {
        const int ak = kAAlongK ? i % kPlainK : i / kPlainTile;
        const int ar = kAAlongK ? i / kPlainK : i % kPlainTile;
        a_tile[ak][ar] = plain_a<Kind>(g, part, m + ar, k0 + ak);
        const int bk = kBAlongK ? i % kPlainK : i / kPlainTile;
        const int bc = kBAlongK ? i / kPlainK : i % kPlainTile;
        b_tile[bk][bc] = plain_b<Kind>(g, part, k0 + bk, n + bc);
      }
      sync_block();
      for (int k = 0; k < kPlainK; ++k) {
        const auto a = load_vec<4>(&a_tile[k][row0]);
        const auto b = load_vec<4>(&b_tile[k][column0]);
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j) acc[i][j] += a[i] * b[j];
      }
      sync_block();
    }

    // Epilogue.
    const int rows = Kind == GroupedKind::kWgrad ? g.m : part.rows;
    for (int i = 0; i < 4; ++i) {
      const int r = m + row0 + i;
      for (int j = 0; j < 4; ++j) {
        const int c = n + column0 + j;
        if (r >= rows || c >= g.n) continue;
        if constexpr (Kind == GroupedKind::kWgrad) {
          g.dweight[(int64_t{part.expert} * g.m + r) * g.n + c] += scale * acc[i][j];
        } else {
          round_to(g.c[int64_t{part.begin + r} * g.n + c], scale * acc[i][j]);
        }
      }
    }
  }
}

template <GroupedKind Kind, typename T>
void launch_plain(Exec on, const char* name, const GroupedPlainArgs<T>& g, int64_t parts) {
  const int64_t of_part = int64_t{ceil_div(g.n, kPlainTile)} *
                          (Kind == GroupedKind::kWgrad ? ceil_div(g.m, kPlainTile) : 1);
  const int64_t blocks = std::min<int64_t>(parts * of_part, on.gpu->multiprocessors * 8);
  launch(on, {.name = name, .grid = {uint32_t(blocks)}, .block = {kPlainThreads}},
         grouped_plain_kernel<T, Kind>, g);
}

}  // namespace assay::gpu
