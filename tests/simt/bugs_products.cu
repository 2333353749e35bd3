// Kernels with a bug in their wgmma. kNone is the correct kernel.
#include <vector>

#include "cuda/gpu.h"
#include "tests/catch.h"
#include "tests/simt/bug_matrix.h"
#include "tests/simt/run.h"

namespace assay {
namespace {

using namespace gpu;
using test::Asan;
using test::Bug;
using test::DeviceArray;

enum class Flaw {
  kNone,
  kNotAligned,
  kReusedBeforeWait,
  kNoProxyFence,
  kNoBarrier,
  kWrongStride,
  kWrongSwizzle,
  kNoFence,
  kLanesDiffer,
  kNoCommit,
  kWrittenBeforeWait,
  kReadBeforeWait,
  kWaitsForOneLess,
  kNoWait,
  kReleaseTooEarly,
};

// --- wgmma. d (64, 32) = a (64, 16) b (32, 16)^T, twice: the second product accumulates and has
// other tiles in the same memory.

template <Flaw F>
__global__ void wgmma_kernel(float* out, const uint16_t* in) {
  GPU_DYNAMIC_SHARED(uint16_t, shared);
  constexpr int kRow = 64;  // elements of a swizzled row, 16 of them used
  uint16_t* const a = F == Flaw::kNotAligned ? shared + kRow : shared;
  uint16_t* const b = a + 64 * kRow;
  const int t = thread_in_block();
  const auto fill = [&](int round) {
    for (int i = t; i < 96 * 16; i += 128) {
      const int row = i / 16, k = i % 16;
      a[row * kRow + (k / 8 ^ row % 8) * 8 + k % 8] = in[round * 96 * 16 + i];
    }
  };
  float d[16];
  for (float& x : d) x = 0;
  for (int round = 0; round < 2; ++round) {
    if (round == 0 || F != Flaw::kReusedBeforeWait) fill(round);
    if constexpr (F != Flaw::kNoProxyFence) fence_proxy_async();
    if constexpr (F != Flaw::kNoBarrier) sync_block();
    constexpr int kStride = F == Flaw::kWrongStride ? 512 : 1024;
    constexpr Swizzle kMode = F == Flaw::kWrongSwizzle ? Swizzle::k64 : Swizzle::k128;
    if constexpr (F != Flaw::kNoFence) wgmma_fence();
    const int accumulate = F == Flaw::kLanesDiffer ? t % 2 : round;
    wgmma_m64k16<32, Major::kK, Major::kK>(d, wgmma_descriptor(a, 0, kStride, kMode),
                                           wgmma_descriptor(b, 0, kStride, kMode), accumulate);
    if constexpr (F != Flaw::kNoCommit) wgmma_commit();
    if constexpr (F == Flaw::kReusedBeforeWait) fill(1);
    if constexpr (F == Flaw::kWrittenBeforeWait) d[3] = 0;
    if constexpr (F == Flaw::kReadBeforeWait) out[t * 16 + 3] = d[3];
    if constexpr (F == Flaw::kWaitsForOneLess) {
      wgmma_wait<1>();
    } else if constexpr (F != Flaw::kNoWait) {
      wgmma_wait<0>();
    }
    sync_block();
  }
  for (int i = 0; i < 16; ++i)
    if (F != Flaw::kReadBeforeWait || i != 3) out[t * 16 + i] = d[i];
}

// The same with 256 threads: the upper half gathers the tiles by cp.async, whose writes need a
// proxy fence like ordinary writes. The lower half executes the fence after its wait.
template <Flaw F>
__global__ void gather_kernel(float* out, const uint16_t* in) {
  GPU_DYNAMIC_SHARED(uint16_t, a);
  constexpr int kRow = 64;
  GPU_SHARED(Mbarrier, full, [1]);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 128);
    mbarrier_init_fence();
  }
  sync_block();
  float d[16];
  for (int round = 0; round < 2; ++round) {
    if (threadIdx.x >= 128) {
      for (int i = int(threadIdx.x) - 128; i < 96 * 2; i += 128) {
        const int row = i / 2, piece = i % 2 ^ row % 8;
        cp_async16(a + row * kRow + piece * 8, in + round * 96 * 16 + i * 8);
      }
      cp_async_mbarrier_arrive(full);
    } else {
      if constexpr (F != Flaw::kNoWait) mbarrier_wait(full, uint32_t(round));
      if constexpr (F != Flaw::kNoProxyFence) fence_proxy_async();
      wgmma_fence();
      wgmma_m64k16<32, Major::kK, Major::kK>(d, wgmma_descriptor(a, 0, 1024),
                                             wgmma_descriptor(a + 64 * kRow, 0, 1024), round);
      wgmma_commit();
      wgmma_wait<0>();
    }
    if constexpr (F != Flaw::kNoBarrier) sync_block();
  }
  if (threadIdx.x < 128)
    for (int i = 0; i < 16; ++i) out[int(threadIdx.x) * 16 + i] = d[i];
}

int run_products(unsigned threads, void (*kernel)(float*, const uint16_t*), int capability = 90) {
  std::vector<uint16_t> in(2 * 96 * 16);
  for (size_t i = 0; i < in.size(); ++i) in[i] = bf16(float(int(i * 37 % 23) - 11)).bits;
  const DeviceArray<uint16_t> from(in);
  DeviceArray<float> to(128 * 16);
  simt::run_grid(
      "wgmma", {1}, {threads}, 16 << 10, [&] { kernel(to.data(), from.data()); },
      gpu_kind(capability));
  const std::vector<float> out = to.host();
  const auto element = [&](int round, int row, int k) {
    return float(bf16::from_bits(in[size_t((round * 96 + row) * 16 + k)]));
  };
  int wrong = 0;
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 16; ++i) {
      const int row = t / 32 * 16 + accum_row(i, t % 32);
      const int column = accum_column(i, t % 32);
      float want = 0;
      for (int round = 0; round < 2; ++round)
        for (int k = 0; k < 16; ++k)
          want += element(round, row, k) * element(round, 64 + column, k);
      wrong += out[size_t(t * 16 + i)] != want;
    }
  }
  return wrong;
}
template <Flaw F, int Capability = 90>
int run_wgmma() {
  return run_products(128, wgmma_kernel<F>, Capability);
}
template <Flaw F>
int run_gather() {
  return run_products(256, gather_kernel<F>);
}

// --- A ring for wgmma: thread 128 copies 6 tiles of 8 x 64 rows through two stages; the warpgroup
// multiplies each tile by itself and keeps one batch in flight.

constexpr int kProductTiles = 6;

template <Flaw F>
__global__ void product_ring_kernel(float* out, const __grid_constant__ TensorMap map) {
  GPU_DYNAMIC_SHARED(unsigned char, ring);
  constexpr int kBytes = 64 * 128;
  GPU_SHARED(Mbarrier, full, [2]);
  GPU_SHARED(Mbarrier, empty, [2]);
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], 1);
    }
    mbarrier_init_fence();
  }
  sync_block();
  if (threadIdx.x >= 128) {
    if (threadIdx.x > 128) return;
    for (int i = 0; i < kProductTiles; ++i) {
      mbarrier_wait(&empty[i % 2], uint32_t(i / 2 + 1) & 1);
      mbarrier_arrive_expect(&full[i % 2], kBytes);
      tma_load(ring + i % 2 * kBytes, &map, &full[i % 2], 0, i * 64);
    }
    return;
  }
  float d[32] = {};
  for (int i = 0; i < kProductTiles; ++i) {
    if constexpr (F != Flaw::kNoWait) mbarrier_wait(&full[i % 2], uint32_t(i / 2) & 1);
    wgmma_fence();
    const uint64_t tile = wgmma_descriptor(ring + i % 2 * kBytes, 0, 1024);
    wgmma_m64k16<64, Major::kK, Major::kK>(d, tile, tile, 1);
    wgmma_commit();
    if constexpr (F == Flaw::kReleaseTooEarly) {
      if (threadIdx.x == 0) mbarrier_arrive(&empty[i % 2]);
      wgmma_wait<1>();
    } else {
      wgmma_wait<1>();
      if (threadIdx.x == 0 && i > 0) mbarrier_arrive(&empty[(i - 1) % 2]);
    }
  }
  wgmma_wait<0>();
  for (int i = 0; i < 32; ++i) out[int(threadIdx.x) * 32 + i] = d[i];
}

template <Flaw F>
int run_product_ring() {
  std::vector<uint16_t> in(kProductTiles * 64 * 64);
  for (size_t i = 0; i < in.size(); ++i) in[i] = bf16(float(int(i * 37 % 23) - 11)).bits;
  const DeviceArray<uint16_t> from(in);
  DeviceArray<float> to(128 * 32);
  const TensorMap map = make_tensor_map({.name = "in",
                                         .base = reinterpret_cast<const bf16*>(from.data()),
                                         .rank = 2,
                                         .dim = {64, kProductTiles * 64},
                                         .stride_bytes = {128},
                                         .box = {64, 64}});
  simt::run_grid("product_ring", {1}, {160}, 16 << 10,
                 [&] { product_ring_kernel<F>(to.data(), map); });
  const std::vector<float> out = to.host();
  const auto element = [&](int tile, int row, int k) {
    return float(bf16::from_bits(in[size_t((tile * 64 + row) * 64 + k)]));
  };
  int wrong = 0;
  for (int t = 0; t < 128; ++t) {
    for (int i = 0; i < 32; ++i) {
      const int row = t / 32 * 16 + accum_row(i, t % 32);
      const int column = accum_column(i, t % 32);
      float want = 0;
      for (int tile = 0; tile < kProductTiles; ++tile)
        for (int k = 0; k < 16; ++k) want += element(tile, row, k) * element(tile, column, k);
      wrong += out[size_t(t * 32 + i)] != want;
    }
  }
  return wrong;
}

constexpr test::Seen kNo = test::Seen::kNo, kWrong = test::Seen::kWrong,
                     kError = test::Seen::kError;

// clang-format off
const Bug kRight[] = {
    {"wgmma", run_wgmma<Flaw::kNone>, kNo, kNo, kNo},
    {"ring of products", run_product_ring<Flaw::kNone>, kNo, kNo, kNo},
    {"gathered tiles", run_gather<Flaw::kNone>, kNo, kNo, kNo},
};

// forward, reverse, random
const Bug kBugs[] = {
    {"wgmma: wrong stride",                         run_wgmma<Flaw::kWrongStride>,                        kWrong, kWrong, kWrong},
    {"wgmma: wrong swizzle",                        run_wgmma<Flaw::kWrongSwizzle>,                       kWrong, kWrong, kWrong},
    {"wgmma: tile not aligned to the pattern",      run_wgmma<Flaw::kNotAligned>,                         kError, kError, kError, "aligned to 1024"},
    {"wgmma: no wait",                              run_wgmma<Flaw::kNoWait>,                             kError, kError, kError, "wgmma_wait"},
    {"wgmma: waits for one batch too few",          run_wgmma<Flaw::kWaitsForOneLess>,                    kError, kError, kError, "wgmma_wait"},
    {"wgmma: no commit",                            run_wgmma<Flaw::kNoCommit>,                           kError, kError, kError, "not committed"},
    {"wgmma: tiles written before the wait",        run_wgmma<Flaw::kReusedBeforeWait>,                   kWrong, kNo,    kWrong, "", Asan::kQuiet, kError},
    {"wgmma: no barrier after tiles are written",   run_wgmma<Flaw::kNoBarrier>,                          kNo,    kWrong, kWrong, "", Asan::kQuiet, kError},
    {"wgmma: accumulator read before the wait",     run_wgmma<Flaw::kReadBeforeWait>,                     kWrong, kWrong, kWrong},
    {"wgmma: accumulator written before the wait",  run_wgmma<Flaw::kWrittenBeforeWait>,                  kError, kError, kError, "accumulator was written"},
    {"wgmma: no wgmma_fence",                       run_wgmma<Flaw::kNoFence>,                            kError, kError, kError, "wgmma_fence"},
    {"wgmma: threads issue different products",     run_wgmma<Flaw::kLanesDiffer>,                        kError, kError, kError, "must issue the same"},
    {"product ring: no wait for full",              run_product_ring<Flaw::kNoWait>,                      kError, kError, kWrong, "", Asan::kQuiet, kError},
    {"product ring: released before the wait",      run_product_ring<Flaw::kReleaseTooEarly>,             kWrong, kNo,    kError},
    {"gathered tiles: no wait",                     run_gather<Flaw::kNoWait>,                            kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"gathered tiles: written before the wait",     run_gather<Flaw::kNoBarrier>,                         kWrong, kError, kWrong},
    {"gathered tiles: no fence_proxy_async",        run_gather<Flaw::kNoProxyFence>,                      kNo,    kNo,    kNo, "", Asan::kQuiet, kError},
    {"wgmma on 10.0",                               run_wgmma<Flaw::kNone, 100>,                          kError, kError, kError, "wgmma is for compute capability 9.0 only, this GPU has 10.0"},
    {"wgmma: no fence_proxy_async",                 run_wgmma<Flaw::kNoProxyFence>,                       kNo,    kNo,    kNo, "", Asan::kQuiet, kError},
};
// clang-format on

TEST_CASE("right wgmma are right under every schedule") {
  test::require_never_seen(kRight);
}

TEST_CASE("bugs of wgmma are seen") {
  test::require_seen(kBugs);
}

}  // namespace
}  // namespace assay
