#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "tests/simt/pipeline.h"

namespace assay::pipeline {

using namespace gpu;

namespace {

constexpr int kTileM = 128, kTileN = 128, kTileK = 64;
constexpr int kStages = 4;
constexpr int kConsumers = 2;  // warpgroups, each with 64 rows of the tile
constexpr int kThreads = kWarp * 4 * (1 + kConsumers);
constexpr int kBlock = 64;                    // elements of a swizzled row
constexpr int kBlockBytes = 64 * kBlock * 2;  // 64 such rows
constexpr int kOperandBytes = kTileM * kTileK * 2;
constexpr int kStageBytes = 2 * kOperandBytes;
constexpr int kSharedBytes = kStages * kStageBytes + kTileM * kTileN * 2;
constexpr int kConsumerWarps = 4 * kConsumers;
static_assert(kTileM == kTileN && kTileM == kConsumers * 64);

struct Maps {
  TensorMap a, b, d;
  int k_tiles;
};

// Loads 128 rows (of m or n) starting at `row` and 64 of k starting at `k`. Either order fills
// blocks of 64 rows of 128 bytes; the second 64 of m or n start kBlockBytes after the first.
template <Major Order>
GPU_DEVICE void load_operand(unsigned char* tile, const TensorMap* map, Mbarrier* full, int row,
                             int k) {
  if constexpr (Order == Major::kK) {
    tma_load(tile, map, full, k, row);
  } else {
    for (int i = 0; i < kTileM / kBlock; ++i)
      tma_load(tile + i * kBlockBytes, map, full, row + i * kBlock, k);
  }
}
template <Major Order>
GPU_DEVICE uint64_t descriptor(const unsigned char* tile, int step) {
  return wgmma_descriptor(tile + step * (Order == Major::kK ? 32 : 2048), kBlockBytes, 1024);
}

// A block computes a 128 x 128 tile of d. One thread of warpgroup 0 copies: stage s of the ring is
// free when the 8 consumer warps have arrived at empty[s], and full when the bytes have arrived at
// full[s]. Each other warpgroup computes 64 rows, keeps one batch of products in flight while it
// waits for the next stage, and stores its rows by TMA. Bound by the tensor cores.
template <Major A, Major B>
__global__ __launch_bounds__(kThreads, 1) void pipeline_kernel(const __grid_constant__ Maps maps) {
  GPU_DYNAMIC_SHARED(unsigned char, ring);
  unsigned char* const staging = ring + kStages * kStageBytes;
  GPU_SHARED(Mbarrier, full, [kStages]);
  GPU_SHARED(Mbarrier, empty, [kStages]);
  const int row = int(blockIdx.y) * kTileM, column = int(blockIdx.x) * kTileN;
  if (threadIdx.x == 0) {
    for (int i = 0; i < kStages; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], kConsumerWarps);
    }
    mbarrier_init_fence();
  }
  sync_block();

  const int group = warp() / 4 - 1;  // index of the consumer warpgroup; -1: the producer
  if (group < 0) {
    set_registers_down<40>();
    if (threadIdx.x != 0) return;
    for (int tile = 0; tile < maps.k_tiles; ++tile) {
      const int stage = tile % kStages, round = tile / kStages;
      unsigned char* const a = ring + stage * kStageBytes;
      // Round 0 waits for the phase before the first, which returns at once.
      mbarrier_wait(&empty[stage], (round & 1) ^ 1);
      mbarrier_arrive_expect(&full[stage], kStageBytes);
      load_operand<A>(a, &maps.a, &full[stage], row, tile * kTileK);
      load_operand<B>(a + kOperandBytes, &maps.b, &full[stage], column, tile * kTileK);
    }
    return;
  }

  set_registers_up<232>();
  float d[kTileN / 2] = {};
  for (int tile = 0; tile < maps.k_tiles; ++tile) {
    const int stage = tile % kStages, round = tile / kStages;
    const unsigned char* const a = ring + stage * kStageBytes + group * kBlockBytes;
    const unsigned char* const b = ring + stage * kStageBytes + kOperandBytes;
    mbarrier_wait(&full[stage], round & 1);
    wgmma_fence();
    for (int step = 0; step < kTileK / 16; ++step) {
      wgmma_m64k16<kTileN, A, B>(d, descriptor<A>(a, step), descriptor<B>(b, step), 1);
    }
    wgmma_commit();
    wgmma_wait<1>();  // the previous batch is complete, so its stage may be refilled
    if (tile > 0 && lane() == 0) mbarrier_arrive(&empty[(tile - 1) % kStages]);
  }
  wgmma_wait<0>();

  // Writes the tile to shared memory in the layout of d's map: two boxes of 64 columns, in pieces
  // of 16 bytes at index piece XOR row.
  unsigned char* const mine = staging + group * 2 * kBlockBytes;
  const int line = warp() % 4 * 16 + lane() % 16;
  for (int i = 0; i < kTileN / 16; ++i) {
    uint32_t packed[4];
    for (int j = 0; j < 4; ++j) packed[j] = pack_bf16(d[8 * i + 2 * j], d[8 * i + 2 * j + 1]);
    const int piece = 2 * i % 8 + lane() / 16;
    stmatrix_x4(mine + i / 4 * kBlockBytes + line * 128 + (piece ^ line % 8) * 16, packed);
  }
  fence_proxy_async();
  named_barrier_sync(1 + group, 128);
  if (threadIdx.x % 128 == 0) {
    for (int i = 0; i < kTileN / kBlock; ++i)
      tma_store(&maps.d, mine + i * kBlockBytes, column + i * kBlock, row + group * 64);
    bulk_commit();
    bulk_wait_read<0>();
  }
}

TensorMap map_of(const char* name, const bf16* base, int rows, int columns, int box_rows) {
  return make_tensor_map({.name = name,
                          .base = base,
                          .rank = 2,
                          .dim = {columns, rows},
                          .stride_bytes = {int64_t{columns} * 2},
                          .box = {kBlock, box_rows},
                          .swizzle = Swizzle::k128});
}
TensorMap operand_map(const char* name, const bf16* base, Major order, int rows, int k) {
  return order == Major::kK ? map_of(name, base, rows, k, kTileM)
                            : map_of(name, base, k, rows, kTileK);
}

template <Major A, Major B>
void run(Exec on, const Product& p) {
  const Maps maps = {.a = operand_map("a", p.a, A, p.m, p.k),
                     .b = operand_map("b", p.b, B, p.n, p.k),
                     .d = map_of("d", p.d, p.m, p.n, kBlock),
                     .k_tiles = (p.k + kTileK - 1) / kTileK};
  const Extent grid = {uint32_t(p.n + kTileN - 1) / kTileN, uint32_t(p.m + kTileM - 1) / kTileM};
  launch(on, {.name = "pipeline", .grid = grid, .block = {kThreads}, .shared_bytes = kSharedBytes},
         pipeline_kernel<A, B>, maps);
}

}  // namespace

void multiply(Exec on, Order order, const Product& p) {
  if (order == Order::kNt) run<Major::kK, Major::kK>(on, p);
  if (order == Order::kNn) run<Major::kK, Major::kMN>(on, p);
  if (order == Order::kTn) run<Major::kMN, Major::kMN>(on, p);
}

}  // namespace assay::pipeline
