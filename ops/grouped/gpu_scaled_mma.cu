#include <algorithm>

#include "base/math.h"
#include "cuda/launch.h"
#include "ops/grouped/gpu_fp8.h"
#include "ops/grouped/gpu_mma.h"
#include "ops/grouped/gpu_scaled.h"

namespace assay::gpu {

namespace {

// The experts' products of 8-bit codes by mma.sync, for GPUs without wgmma. A block owns tiles of
// 128 x 128 elements of c; with SwiGLU 128 x 64 of the gate and of up. Each of its 8 warps owns 16
// rows and all columns. A stage holds 128 of the K index of both operands, as 128 rows of 64 pairs
// of codes, copied by cp.async of all threads; its sums are added to those of the tile in float
// (ops/grouped/gpu_fp8.h).
//
// Bound by mma.sync: a warp reads 5 KB of shared memory for 16 products of a step, 40 clocks of an
// SM, while the products take at least 64. Registers and stages allow one block per SM.
constexpr int kCodeTileK = 64;  // pairs
constexpr int kCodeStages = 3;
constexpr int kCodePart = kMmaSide * kCodeTileK;  // pairs of an operand in a stage
constexpr int kCodeStage = 2 * kCodePart;
constexpr int kCodeSharedBytes = kCodeStages * kCodeStage * int(sizeof(bf16));
static_assert(kCodeSharedBytes <= 99 * 1024);  // of a block on 8.9 and 12.0

struct GroupedCodeArgs {
  const bf16* a;  // (rows, k)   pairs of codes, as k
  const bf16* b;  // line n of expert e at b + e b_expert + n b_line
  int64_t b_expert, b_line;
  // The others are those of GroupedMmaArgs and GroupedTileArgs.
  void* c;
  bf16* h = nullptr;
  const bf16* gate_up = nullptr;
  const int32_t* row = nullptr;
  GroupedParts work;
  int m = 0;
  int n, k;
  ProductScale scale = {};
  GroupedBlockScales blocks = {};
  float* amax = nullptr;
};

template <GroupedEnd End_, bool Gathered, Fp8 A_>
struct GroupedCodeTile {
  static constexpr GroupedKind Kind = GroupedKind::kForward;
  static constexpr GroupedEnd End = End_;
  static constexpr Fp8 A = A_;
  static constexpr bool gathered = Gathered;
  static constexpr bool swiglu = End == GroupedEnd::kSwiglu;
  static constexpr int columns = swiglu ? kMmaSide / 2 : kMmaSide;
  static constexpr int tile_k = kCodeTileK;
};

// The copies of one tile, stage after stage: 16 bytes each, of row thread / 8 + 32 i, pairs 8
// (thread % 8) and on. Codes outside the segment or the matrix become zero.
template <typename Tile>
struct GroupedCodeCopies {
  static constexpr int kCount = kMmaSide * 8 / kMmaThreads;
  const GroupedCodeArgs& g;
  const GroupedAt& at;
  int a_row[kCount];  // -1: outside

  GPU_DEVICE static int row_of(int i) { return int(threadIdx.x) / 8 + i * (kMmaThreads / 8); }

  GPU_DEVICE void begin() {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int r = row_of(i), assignment = at.part.begin + r;
      a_row[i] = r >= at.part.rows ? -1 : Tile::gathered ? g.row[assignment] : assignment;
    }
  }

  GPU_DEVICE void copy_stage(bf16* stage, int k_tile) const {
    const int chunk = int(threadIdx.x) % 8, k = k_tile * kCodeTileK + chunk * 8;
    const bf16* const expert = g.b + at.part.expert * g.b_expert;
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      bf16* const to = chunk_of<kCodeTileK>(stage, 0, uint32_t(row_of(i)), uint32_t(chunk));
      const bool a_inside = a_row[i] >= 0 && k < g.k;
      cp_async16(to, g.a + (a_inside ? int64_t{a_row[i]} * g.k + k : 0), a_inside ? 16 : 0);
      // With SwiGLU the second half of the rows are lines of up, which follow those of the gate.
      const int column = at.n + row_of(i) % Tile::columns;
      const int64_t line = column + row_of(i) / Tile::columns * g.n;
      const bool b_inside = column < g.n && k < g.k;
      cp_async16(to + kCodePart, expert + (b_inside ? line * g.b_line + k : 0), b_inside ? 16 : 0);
    }
  }
};

// acc += a b of one stage, of the warp's rows from `row` on and one half of the tile's columns. The
// halves come one after the other: the sums of both at once leave too few registers.
template <typename Tile>
GPU_DEVICE void add_stage(float (&acc)[kMmaSide / 2], int half, const bf16* stage, int row,
                          const GroupedStageScales& scales) {
  constexpr int kTiles = kMmaSide / 8 / 2;  // of 8 columns
  float part[kTiles][4] = {};
#pragma unroll 2  // by 4 it spills on 8.0, 9.0 and 10.0
  for (int step = 0; step < kCodeTileK / 16; ++step) {
    uint32_t a[4];
    load_a<kCodeTileK>(a, stage, row, uint32_t(step));
#pragma unroll
    for (int n = 0; n < kTiles; n += 2) {
      uint32_t b[4];
      load_b_rows<kCodeTileK>(b, stage + kCodePart, 8 * (half * kTiles + n), uint32_t(step));
      const uint32_t low[2] = {b[0], b[1]}, high[2] = {b[2], b[3]};
      mma_m16n8k32<Tile::A>(part[n], a, low);
      mma_m16n8k32<Tile::A>(part[n + 1], a, high);
    }
  }
#pragma unroll
  for (int n = 0; n < kTiles; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float& sum = acc[4 * (half * kTiles + n) + i];
      sum = fmaf(part[n][i], scales.a[accum_half(i)] * scales.b[half], sum);
    }
  }
}

// The sums of a tile: of the warp's rows from `of_warp` on. While a stage is multiplied the next
// ones arrive.
template <typename Tile>
GPU_DEVICE void multiply_tile(float (&acc)[kMmaSide / 2], const GroupedCodeArgs& g,
                              const GroupedAt& at, bf16* shared, int of_warp) {
  GroupedCodeCopies<Tile> copies{g, at, {}};
  const auto copy = [&](int k) {
    if (k < at.k_tiles) copies.copy_stage(shared + k % kCodeStages * kCodeStage, k);
    cp_async_commit();
  };
  const int in_blocks = g.blocks.a != nullptr;
  const GroupedScaleRows rows =
      in_blocks ? scale_rows<Tile>(g, at.part, of_warp) : GroupedScaleRows{};
  for (float& sum : acc) sum = 0;

  // Prologue.
  copies.begin();
  for (int k = 0; k < kCodeStages - 1; ++k) copy(k);

  // Main loop.
  for (int k = 0; k < at.k_tiles; ++k) {
    const GroupedStageScales scales =
        in_blocks ? stage_scales<Tile>(g, at, rows, k) : GroupedStageScales{{1, 1}, {1, 1}};
    cp_async_wait<kCodeStages - 2>();
    sync_block();  // this stage has landed, and the one before it is free
    copy(k + kCodeStages - 1);
    if (of_warp >= at.part.rows) continue;
    const bf16* const stage = shared + k % kCodeStages * kCodeStage;
    add_stage<Tile>(acc, 0, stage, of_warp, scales);
    add_stage<Tile>(acc, 1, stage, of_warp, scales);
  }
  cp_async_wait<0>();
}

template <typename Tile>
__global__ __launch_bounds__(kMmaThreads, 1) void grouped_codes_mma_kernel(
    const __grid_constant__ GroupedCodeArgs g) {
  GPU_DYNAMIC_SHARED(bf16, shared);
  const int of_warp = warp() * 16;
  const int tiles = *g.work.count * grouped_tiles_of_part<Tile>(g);
  for (int t = int(blockIdx.x); t < tiles; t += int(gridDim.x)) {
    const GroupedAt at = grouped_at<Tile>(g, t, grouped_part<Tile>(g, t));
    float acc[kMmaSide / 2];
    multiply_tile<Tile>(acc, g, at, shared, of_warp);

    // Epilogue, through the stage that would be next: all warps have read it.
    unsigned char* const staging =
        reinterpret_cast<unsigned char*>(shared + at.k_tiles % kCodeStages * kCodeStage) +
        warp() * (kGroupedStagingBytes / 8);
    if (!g.scale.empty()) {
      const float scale = g.scale.factor();
      for (float& sum : acc) sum *= scale;
    }
    const int rows = at.part.rows - of_warp;
    const int64_t row = at.part.begin + of_warp;
    if constexpr (Tile::End == GroupedEnd::kPlain) {
      store_rows<kMmaSide>(acc, staging, g, row, rows, at.n);
    } else if constexpr (Tile::swiglu) {
      store_swiglu<kMmaSide>(acc, staging, g, row, rows, at.n);
    } else {
#pragma unroll
      for (int block = 0; block < kMmaSide / kGroupedSlab; ++block)
        store_gradient(acc, staging, g, row, rows, at.n + block * kGroupedSlab, block);
    }
    sync_block();  // the stages are free for the next tile
  }
}

// Arguments common to the three ops; also cuts the work. The caller sets c and its companions.
GroupedCodeArgs product_args(Exec on, const char* name, const CodedMatrix& x, const CodedStack& w,
                             View<const int32_t, 1> offsets, int64_t assignments) {
  const bool along_k = w.along == CodedStack::Experts::kAlongK;
  const int64_t pitch = w.all.k() / 2;
  GroupedCodeArgs g{.a = code_pairs(x),
                    .b = code_pairs(w.all),
                    .b_expert = along_k ? w.k() / 2 : w.lines() * pitch,
                    .b_line = pitch,
                    .c = nullptr,
                    .work = grouped_parts(on, name, assignments, w.experts),
                    .n = int(w.lines()),
                    .k = int(x.k() / 2),
                    .blocks = block_scales(x, w)};
  if (x.format.scale == ScaleKind::kTensor) g.scale = {x.tensor_scale, w.all.tensor_scale};
  cut_rows(on, g.work, offsets, assignments, kGroupedTileM);
  return g;
}

template <GroupedEnd End, bool Gathered>
void launch_product(Exec on, const char* name, const GroupedCodeArgs& g, const CodedMatrix& x,
                    const CodedStack& w, int64_t assignments) {
  const auto launch_as = [&]<Fp8 A>() {
    using Tile = GroupedCodeTile<End, Gathered, A>;
    const int64_t tiles =
        grouped_parts_limit(assignments, w.experts, kGroupedTileM) * ceil_div(g.n, Tile::columns);
    launch(on,
           {.name = name,
            .grid = {uint32_t(std::min<int64_t>(tiles, on.gpu->multiprocessors))},
            .block = {kMmaThreads},
            .shared_bytes = kCodeSharedBytes},
           grouped_codes_mma_kernel<Tile>, g);
  };
  if (x.format.element == ElementFormat::kE4M3) return launch_as.template operator()<Fp8::kE4M3>();
  launch_as.template operator()<Fp8::kE5M2>();
}

}  // namespace

void grouped_scaled_linear_mma(Exec on, const GroupedScaledLinear& a) {
  constexpr const char* kName = "grouped_scaled_linear";
  const int64_t assignments = a.y.dim[0];
  GroupedCodeArgs g = product_args(on, kName, a.x, a.weight, a.offsets, assignments);
  g.c = a.y.data;
  launch_product<GroupedEnd::kPlain, false>(on, kName, g, a.x, a.weight, assignments);
}

void grouped_scaled_swiglu_forward_mma(Exec on, const GroupedScaledSwigluForward& a) {
  constexpr const char* kName = "grouped_scaled_swiglu_forward";
  const int64_t assignments = a.h.dim[0];
  GroupedCodeArgs g = product_args(on, kName, a.x, a.weight, a.offsets, assignments);
  g.c = a.gate_up.data;
  g.h = a.h.data;
  g.amax = a.amax.data;
  g.row = a.row.data;
  g.n = int(a.h.dim[1]);
  launch_product<GroupedEnd::kSwiglu, true>(on, kName, g, a.x, a.weight, assignments);
}

void grouped_scaled_swiglu_dgrad_mma(Exec on, const GroupedScaledSwigluDgrad& a) {
  constexpr const char* kName = "grouped_scaled_swiglu_dgrad";
  const int64_t assignments = a.gate_up.dim[0];
  GroupedCodeArgs g = product_args(on, kName, a.dy, a.weight, a.offsets, assignments);
  g.c = a.dgate_up.data;
  g.amax = a.amax.data;
  g.gate_up = a.gate_up.data;
  launch_product<GroupedEnd::kSwigluGradient, false>(on, kName, g, a.dy, a.weight, assignments);
}

}  // namespace assay::gpu
