// Grouped GEMM on tensor cores: the tiles and the main loop of forward, dgrad and wgrad, and the
// ring of stages between the warpgroup that copies and the two math warpgroups.
//
//   forward   c (rows, n) = a (rows, k) W[e]^T      a: x, in order or gathered       W[e] (n, k)
//   dgrad     c (rows, n) = a (rows, k) W[e]        a: dy                            W[e] (k, n)
//   wgrad     c[e] (m, n) += a^T (m, rows) b        a: dy, b: x, in order or gathered
//
// A tile of c has 128 x N elements, N = 128, 192 or 256; math warpgroups 1 and 2 own 64 rows of it
// each. A stage holds 64 of the K index: an A block of 16 KiB and a B block of 128 N bytes, both in
// slabs of 128-byte rows with the swizzle of TMA. The forward layout also multiplies FP8 codes
// (ops/grouped_scaled.h): its 128-byte rows are then 128 of the K index, moved as 64 pairs, so k,
// the tensor maps and the rows of a count pairs. A tile at the end of a segment also computes the
// rows after it (the next expert's) but does not store them; in a sum over tokens (wgrad) these are
// zero.
#pragma once

#include "base/math.h"
#include "cuda/context.h"
#include "cuda/gpu.h"
#include "ops/grouped/gpu_work_list.h"
#include "ops/product_scale.h"

namespace assay::gpu {

enum class GroupedKind { kForward, kDgrad, kWgrad };
enum class GroupedRows { kInOrder, kGathered };
// Epilogue applied to c before it is stored (not for wgrad): ops/grouped_swiglu.h.
enum class GroupedEnd { kPlain, kSwiglu, kSwigluGradient };
// How wgrad's sums reach memory. kStore: they replace what is there. kAdd: the memory adds them
// (reduce_add), which flushes subnormal numbers.
enum class GroupedSum { kStore, kAdd };
// Element type of a and b; weights are E4M3 if a has 8 bits.
enum class GroupedElement { kBf16, kE4M3, kE5M2 };

constexpr int kGroupedTileM = 128;
constexpr int kGroupedTileK = 64;
constexpr int kGroupedThreads = 384;
constexpr int kGroupedSlab = 64;                // elements of a 128-byte row
constexpr int kGroupedSlabBytes = 64 * 128;     // bytes of a slab: 64 rows
constexpr int kGroupedStagingBytes = 8 * 2048;  // 8 warps, each 16 rows x 64 columns of bf16

// fp32 decode scales of FP8 operands with blocks of 128 along K, and their strides; null: none.
struct GroupedBlockScales {
  const float* a = nullptr;  // scales of the blocks of a row
  int64_t a_row = 0, a_block = 0;
  const float* b = nullptr;               // scales of 128 x 128 blocks of the weights
  int64_t b_expert = 0, b_row_block = 0;  // scales of one row of blocks are contiguous
};

struct GroupedTileArgs {
  // Rows of a: box 64 x 128, wgrad 64 x 64. Not used if forward gathers.
  TensorMap a;
  // forward: W, box 64 x N/2 x 1; dgrad: W, 64 x 64 x 1; wgrad: x, 64 x 64, not used if gathered.
  TensorMap b;
  // bf16 (A, n); wgrad: float (E, m, n); with SwiGLU (A, 2 n), gate and up or their gradient.
  void* c;
  bf16* h = nullptr;              // (A, n), forward with SwiGLU
  const bf16* gate_up = nullptr;  // (A, 2 n), dgrad with SwiGLU; may be c
  const bf16* x = nullptr;        // (rows, k), wgrad (rows, n); if rows are gathered
  const int32_t* row = nullptr;   // (A), if rows are gathered
  GroupedParts work;
  int m = 0;  // for wgrad; m, n and k are multiples of 8
  int n;
  int k = 0;                          // not for wgrad
  GroupedSum sum = GroupedSum::kAdd;  // wgrad; c is dweight
  ProductScale scale = {};
  GroupedBlockScales blocks = {};
  // FP8 b: 1 if the dimensions of its map are (k, expert, line), not (k, line, expert).
  int b_by_expert = 0;
  float* amax = nullptr;  // with SwiGLU: amax slot of h, or of the gradients; or null
  TensorMap c_map = {};   // bulk_stores: c, box 64 x 16; set by the launch
};

template <GroupedKind Kind_, GroupedRows Rows_, int N_, GroupedEnd End_ = GroupedEnd::kPlain,
          GroupedElement Element_ = GroupedElement::kBf16>
struct GroupedTile {
  static constexpr GroupedKind Kind = Kind_;
  static constexpr GroupedEnd End = End_;
  static constexpr GroupedElement Element = Element_;
  static constexpr bool quantised = Element != GroupedElement::kBf16;
  static constexpr bool swiglu = End == GroupedEnd::kSwiglu;
  static constexpr bool gathered = Rows_ == GroupedRows::kGathered;
  static constexpr int N = N_;
  // A warp stores its 16 rows of c by TMA, for which no thread waits, if all of them exist.
  static constexpr bool bulk_stores =
      Kind != GroupedKind::kWgrad && !quantised && End == GroupedEnd::kPlain;
  static constexpr int tile_k = kGroupedTileK;
  // Columns of c from one tile to the next. Forward with SwiGLU: N/2 columns of the gate and the
  // N/2 matching columns of up.
  static constexpr int columns = swiglu ? N / 2 : N;
  static constexpr Major a_order = Kind == GroupedKind::kWgrad ? Major::kMN : Major::kK;
  static constexpr Major b_order = Kind == GroupedKind::kForward ? Major::kK : Major::kMN;
  static constexpr int a_bytes = kGroupedTileM * kGroupedTileK * 2;
  static constexpr int b_bytes = N * kGroupedTileK * 2;
  static constexpr int stage_bytes = a_bytes + b_bytes;
  static constexpr int stages = N == 256 ? 4 : N == 192 ? 5 : 6;  // as many as fit in 227 KiB
  // Buffers of a warp for bulk stores; with 192 columns there is room for one.
  static constexpr int store_buffers = bulk_stores && N != 192 ? 2 : 1;
  static constexpr int staging_bytes = store_buffers * kGroupedStagingBytes;
  static constexpr int shared_bytes = stages * stage_bytes + staging_bytes;
  // Bytes that TMA loads per stage; a gathered operand is loaded by cp.async of 128 threads.
  static constexpr int tma_bytes = !gathered                       ? stage_bytes
                                   : Kind == GroupedKind::kForward ? b_bytes
                                                                   : a_bytes;
  static constexpr int full_arrivals = gathered ? 1 + 128 : 1;
  static constexpr int empty_arrivals = 8;  // warps of warpgroups 1 and 2
  static_assert(N == 128 || N == 192 || N == 256);
  static_assert(shared_bytes + 1024 <= 232448);
  static_assert(!gathered || Kind != GroupedKind::kDgrad);
  static_assert(!swiglu || Kind == GroupedKind::kForward);
  static_assert(!quantised || (Kind == GroupedKind::kForward && N == 128));
  static_assert(columns % kGroupedSlab == 0);
};

// Position of a thread in the ring. The barriers of a stage complete one phase per round.
template <int Stages>
struct GroupedRing {
  int stage = 0;
  uint32_t round = 0;  // parity
  GPU_DEVICE void advance() {
    if (++stage == Stages) {
      stage = 0;
      round ^= 1;
    }
  }
};

struct GroupedBarriers {
  Mbarrier* full;
  Mbarrier* empty;
};

// Work of tile t. The tiles of a part are consecutive, so that concurrent blocks share its rows in
// L2.
struct GroupedAt {
  GroupedPart part;
  int m, n;
  int k_tiles;
};
template <typename Tile, typename Args>
GPU_DEVICE int grouped_tiles_of_part(const Args& g) {
  const int across = ceil_div(g.n, Tile::columns);
  if constexpr (Tile::Kind != GroupedKind::kWgrad) return across;
  return across * ceil_div(g.m, kGroupedTileM);
}
template <typename Tile, typename Args>
GPU_DEVICE GroupedPart grouped_part(const Args& g, int t) {
  const GroupedPart* const part = g.work.parts + t / grouped_tiles_of_part<Tile>(g);
  const auto four = load_vec<4>(reinterpret_cast<const int32_t*>(part));
  return {four[0], four[1], four[2], four[3]};
}
template <typename Tile, typename Args>
GPU_DEVICE GroupedAt grouped_at(const Args& g, int t, const GroupedPart& part) {
  const int of_part = grouped_tiles_of_part<Tile>(g);
  const int across = ceil_div(g.n, Tile::columns), within = t % of_part;
  const int k = Tile::Kind == GroupedKind::kWgrad ? part.rows : g.k;
  return {.part = part,
          .m = within / across * kGroupedTileM,
          .n = within % across * Tile::columns,
          .k_tiles = ceil_div(k, Tile::tile_k)};
}

// The tiles of a block, as both roles walk them.
template <typename Tile>
struct GroupedWalk {
  const GroupedTileArgs& g;
  int t, tiles;

  GPU_DEVICE explicit GroupedWalk(const GroupedTileArgs& args)
      : g(args), t(int(blockIdx.x)), tiles(*args.work.count * grouped_tiles_of_part<Tile>(args)) {}
  GPU_DEVICE bool more() const { return t < tiles; }
  GPU_DEVICE GroupedAt next() {
    const GroupedAt at = grouped_at<Tile>(g, t, grouped_part<Tile>(g, t));
    t += int(gridDim.x);
    return at;
  }
};

// --- Producer: TMA loads of one stage, by one thread.

template <typename Tile>
GPU_DEVICE void load_stage(const GroupedTileArgs& g, const GroupedAt& at, int k_tile,
                           unsigned char* stage, Mbarrier* full) {
  constexpr GroupedKind Kind = Tile::Kind;
  const int k = k_tile * kGroupedTileK;
  unsigned char* const b = stage + Tile::a_bytes;
  mbarrier_arrive_expect(full, Tile::tma_bytes);
  if constexpr (Kind == GroupedKind::kWgrad) {
    const int token = at.part.begin + k;
    for (int i = 0; i < kGroupedTileM / kGroupedSlab; ++i)
      tma_load(stage + i * kGroupedSlabBytes, &g.a, full, at.m + i * kGroupedSlab, token);
    if constexpr (!Tile::gathered)
      for (int i = 0; i < Tile::N / kGroupedSlab; ++i)
        tma_load(b + i * kGroupedSlabBytes, &g.b, full, at.n + i * kGroupedSlab, token);
  } else {
    if constexpr (!Tile::gathered) tma_load(stage, &g.a, full, k, at.part.begin);
    if constexpr (Kind == GroupedKind::kForward) {
      for (int half = 0; half < 2; ++half) {
        unsigned char* const to = b + half * (Tile::b_bytes / 2);
        const int line = at.n + half * (Tile::swiglu ? g.n : Tile::N / 2);
        if (Tile::quantised && g.b_by_expert) {
          tma_load(to, &g.b, full, k, at.part.expert, line);
        } else {
          tma_load(to, &g.b, full, k, line, at.part.expert);
        }
      }
    } else {
      for (int i = 0; i < Tile::N / kGroupedSlab; ++i)
        tma_load(b + i * kGroupedSlabBytes, &g.b, full, at.n + i * kGroupedSlab, k, at.part.expert);
    }
  }
}

// --- Producer: gathered rows by 128 threads, 8 per row of 128 bytes, 16 bytes each, to the
// addresses that the swizzle of TMA would give them. Elements outside become zero. Each thread
// arrives at the barrier of the stage when its copies have landed.

// Rows of x that this thread copies, 16 apart; -1 past the end.
template <int Count>
GPU_DEVICE void gathered_rows(int (&source)[Count], const GroupedTileArgs& g,
                              const GroupedPart& part, int from) {
  for (int i = 0; i < Count; ++i) {
    const int r = from + int(threadIdx.x) / 8 + 16 * i;
    source[i] = r < part.rows ? g.row[part.begin + r] : -1;
  }
}
template <int Count>
GPU_DEVICE void gather_slab(const int (&source)[Count], const bf16* x, int width, int column,
                            unsigned char* slab) {
  const int piece = int(threadIdx.x) % 8, r = int(threadIdx.x) / 8;
  const int c = column + piece * 8;
  unsigned char* const to = slab + r * 128 + (piece ^ r % 8) * 16;
  for (int i = 0; i < Count; ++i) {
    const bool inside = source[i] >= 0 && c < width;
    cp_async16(to + i * 16 * 128, x + (inside ? int64_t{source[i]} * width + c : 0),
               inside ? 16 : 0);
  }
}

template <typename Tile>
GPU_DEVICE void copy_tiles(const GroupedTileArgs& g, unsigned char* shared,
                           const GroupedBarriers& barriers) {
  constexpr int kSources = Tile::Kind == GroupedKind::kWgrad ? 4 : 8;
  GroupedRing<Tile::stages> ring;
  for (GroupedWalk<Tile> walk(g); walk.more();) {
    const GroupedAt at = walk.next();
    [[maybe_unused]] int source[kSources];
    if constexpr (Tile::gathered) gathered_rows(source, g, at.part, 0);
    for (int k = 0; k < at.k_tiles; ++k, ring.advance()) {
      unsigned char* const stage = shared + ring.stage * Tile::stage_bytes;
      Mbarrier* const full = &barriers.full[ring.stage];
      mbarrier_wait(&barriers.empty[ring.stage], ring.round ^ 1);  // does not wait in round 0

      // TMA loads.
      if (threadIdx.x == 0) load_stage<Tile>(g, at, k, stage, full);

      // Gathered rows.
      if constexpr (Tile::gathered && Tile::Kind == GroupedKind::kForward) {
        gather_slab(source, g.x, g.k, k * kGroupedTileK, stage);
        cp_async_mbarrier_arrive(full);
      }
      if constexpr (Tile::gathered && Tile::Kind == GroupedKind::kWgrad) {
        for (int i = 0; i < Tile::N / kGroupedSlab; ++i)
          gather_slab(source, g.x, g.n, at.n + i * kGroupedSlab,
                      stage + Tile::a_bytes + i * kGroupedSlabBytes);
        cp_async_mbarrier_arrive(full);
        gathered_rows(source, g, at.part, (k + 1) * kGroupedTileK);  // prefetch for the next stage
      }
    }
  }
}

// --- Consumers: math warpgroups.

template <Major Order>
GPU_DEVICE uint64_t grouped_descriptor(const unsigned char* tile, int step) {
  return wgmma_descriptor(tile + step * k_step_bytes<Order>(), kGroupedSlabBytes, 1024);
}

// Zeroes the tokens after the end of the segment, which belong to the next expert, in both
// operands, so that infinities and NaN there do not count. Called by both math warpgroups before
// either multiplies. Gathered rows are already zero.
template <typename Tile>
GPU_DEVICE void clear_tokens(unsigned char* stage, int tokens) {
  constexpr int kSlabs =
      kGroupedTileM / kGroupedSlab + (Tile::gathered ? 0 : Tile::N / kGroupedSlab);
  const int pieces = (kGroupedTileK - tokens) * 8;
  for (int slab = 0; slab < kSlabs; ++slab) {
    unsigned char* const from = stage + slab * kGroupedSlabBytes + tokens * 128;
    for (int i = int(threadIdx.x) - 128; i < pieces; i += 256)
      store_vec(reinterpret_cast<uint32_t*>(from + i * 16), Vec<uint32_t, 4>{});
  }
  fence_proxy_async();
  named_barrier_sync(1, 256);
}

// By a warp whose lanes have all read the stage.
GPU_DEVICE void release_stage(Mbarrier* empty) {
  if (lane() == 0) mbarrier_arrive(empty);
}

// acc = 64 rows of the tile, for this warpgroup. One batch of products runs while the next stage is
// awaited; a warp releases a stage when its batch is done.
template <typename Tile>
GPU_DEVICE void multiply_tile(float (&acc)[Tile::N / 2], const GroupedAt& at, int active,
                              GroupedRing<Tile::stages>& ring, unsigned char* shared,
                              const GroupedBarriers& barriers) {
  const int a_offset = (warp() / 4 - 1) * kGroupedSlabBytes;
  int previous = -1;

  // Main loop.
  for (int k = 0; k < at.k_tiles; ++k, ring.advance()) {
    unsigned char* const stage = shared + ring.stage * Tile::stage_bytes;
    mbarrier_wait(&barriers.full[ring.stage], ring.round);
    // cp.async writes through the generic proxy, as ordinary stores do: the barrier orders the
    // writes before this fence, and the fence before the reads of the tensor cores.
    if constexpr (Tile::gathered) fence_proxy_async();
    if constexpr (Tile::Kind == GroupedKind::kWgrad) {
      const int tokens = at.part.rows - k * kGroupedTileK;
      if (tokens < kGroupedTileK) clear_tokens<Tile>(stage, tokens);
    }

    // Products of the stage.
    if (active) {
      wgmma_fence();
      for (int step = 0; step < kGroupedTileK / 16; ++step) {
        wgmma_m64k16<Tile::N, Tile::a_order, Tile::b_order>(
            acc, grouped_descriptor<Tile::a_order>(stage + a_offset, step),
            grouped_descriptor<Tile::b_order>(stage + Tile::a_bytes, step), (k | step) != 0);
      }
      wgmma_commit();
      wgmma_wait<1>();
    } else {
      sync_warp();  // all lanes have seen the stage full before lane 0 releases it
    }

    // Release the previous stage.
    if (previous >= 0) release_stage(&barriers.empty[previous]);
    previous = ring.stage;
  }

  // Release the last stage.
  wgmma_wait<0>();
  release_stage(&barriers.empty[previous]);
}

}  // namespace assay::gpu
