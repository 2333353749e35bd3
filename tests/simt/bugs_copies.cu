// Kernels with a bug in their asynchronous copies. kNone is the correct kernel.
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
  kMisaligned,
  kNoCommit,
  kWaitsForOneLess,
  kNoWait,
  kNoBarrier,
  kReusedBeforeRead,
  kTooFewArrivals,
  kTooManyArrivals,
  kUninitialised,
  kTooFewBytes,
  kTooManyBytes,
  kWrongRank,
  kRowInsidePiece,
  kWrongBytesNextPhase,
  kInitInUse,
  kWrongParity,
  kSwizzleIgnored,
  kNoEmptyWait,
  kReleaseTooEarly,
  kNoRelease,
  kNoProxyFence,
  kNoReadWait,
  kEndsBeforeRead,
};

using Piece = Vec<uint32_t, 4>;  // 16 bytes

// --- cp.async. Two rounds through one buffer; a thread reads what its neighbour copied.

template <Flaw F>
__global__ void cp_async_kernel(Piece* out, const Piece* in) {
  GPU_SHARED(Piece, tile, [65]);
  const int t = thread_in_block();
  Piece* const mine = tile + t;
  for (int round = 0; round < 2; ++round) {
    char* to = reinterpret_cast<char*>(mine) + (F == Flaw::kMisaligned ? 8 : 0);
    cp_async16(to, in + round * 64 + t);
    if constexpr (F != Flaw::kNoCommit) cp_async_commit();
    if constexpr (F == Flaw::kWaitsForOneLess) {
      cp_async_wait<1>();
    } else if constexpr (F != Flaw::kNoWait) {
      cp_async_wait<0>();
    }
    if constexpr (F != Flaw::kNoBarrier) sync_block();
    out[round * 64 + t] = tile[t ^ 33];
    if constexpr (F != Flaw::kReusedBeforeRead) sync_block();
  }
}

template <Flaw F, int Capability = 90>
int run_cp_async() {
  std::vector<Piece> in(128);
  for (size_t i = 0; i < in.size(); ++i) in[i] = {{uint32_t(i), 1, 2, 3}};
  const DeviceArray<Piece> from(in);
  DeviceArray<Piece> to(128);
  simt::run_grid(
      "cp_async", {1}, {64}, 0, [&] { cp_async_kernel<F>(to.data(), from.data()); },
      gpu_kind(Capability));
  const std::vector<Piece> out = to.host();
  int wrong = 0;
  for (size_t i = 0; i < 128; ++i) wrong += out[i].element[0] != uint32_t(i ^ 33);
  return wrong;
}

// One warp copies for another; all of its lanes arrive.
template <Flaw F>
__global__ void cp_async_mbarrier_kernel(Piece* out, const Piece* in) {
  GPU_SHARED(Piece, tile, [32]);
  GPU_SHARED(Mbarrier, full, [1]);
  if (threadIdx.x == 0) {
    mbarrier_init(full, F == Flaw::kTooFewArrivals ? 31 : F == Flaw::kTooManyArrivals ? 33 : 32);
    mbarrier_init_fence();
  }
  sync_block();
  if (warp() == 0) {
    cp_async16(tile + lane(), in + lane());
    cp_async_mbarrier_arrive(full);
  } else {
    if constexpr (F != Flaw::kNoWait) mbarrier_wait(full, 0);
    out[lane()] = tile[lane()];
  }
}

template <Flaw F>
int run_cp_async_mbarrier() {
  std::vector<Piece> in(32);
  for (size_t i = 0; i < in.size(); ++i) in[i] = {{uint32_t(i), 1, 2, 3}};
  const DeviceArray<Piece> from(in);
  DeviceArray<Piece> to(32);
  simt::run_grid("cp_async_mbarrier", {1}, {64}, 0,
                 [&] { cp_async_mbarrier_kernel<F>(to.data(), from.data()); });
  const std::vector<Piece> out = to.host();
  int wrong = 0;
  for (size_t i = 0; i < 32; ++i) wrong += out[i].element[0] != uint32_t(i);
  return wrong;
}

// --- TMA. Two tiles of 8 rows of 64 elements, one after the other, through one buffer.

constexpr int kTileElements = 8 * 64;

template <Flaw F>
__global__ void tma_kernel(uint16_t* out, const __grid_constant__ TensorMap map) {
  GPU_DYNAMIC_SHARED(uint16_t, shared);
  uint16_t* const tile = F == Flaw::kMisaligned ? shared + 64 : shared;
  GPU_SHARED(Mbarrier, full, [1]);
  if (threadIdx.x == 0 && F != Flaw::kUninitialised) {
    mbarrier_init(full, 1);
    mbarrier_init_fence();
  }
  sync_block();
  for (int round = 0; round < 2; ++round) {
    constexpr int kBytes = kTileElements * 2;
    constexpr int kExpected = F == Flaw::kTooFewBytes    ? kBytes / 2
                              : F == Flaw::kTooManyBytes ? kBytes * 2
                                                         : kBytes;
    if (threadIdx.x == 0) {
      mbarrier_arrive_expect(full, kExpected);
      if constexpr (F == Flaw::kWrongRank) {
        tma_load(tile, &map, full, 0, round * 8, 0);
      } else if constexpr (F == Flaw::kRowInsidePiece) {
        tma_load(tile, &map, full, 4, round * 8);
      } else if constexpr (F == Flaw::kWrongBytesNextPhase) {
        tma_load(tile, &map, full, 0, round * 8);
        tma_load(tile + kTileElements, &map, full, 0, round * 8);
      } else {
        tma_load(tile, &map, full, 0, round * 8);
      }
      if constexpr (F == Flaw::kInitInUse) mbarrier_init(full, 1);
    }
    if constexpr (F != Flaw::kNoWait)
      mbarrier_wait(full, uint32_t(F == Flaw::kWrongParity ? 1 - round : round));
    for (int i = lane(); i < kTileElements; i += kWarp) {
      const int row = i / 64, piece = F == Flaw::kSwizzleIgnored ? i / 8 % 8 : i / 8 % 8 ^ row;
      out[round * kTileElements + i] = tile[row * 64 + piece * 8 + i % 8];
    }
    if constexpr (F != Flaw::kReusedBeforeRead) sync_block();
  }
}

template <Flaw F, int Capability = 90>
int run_tma() {
  std::vector<uint16_t> in(2 * kTileElements);
  for (size_t i = 0; i < in.size(); ++i) in[i] = uint16_t(i + 1);
  const DeviceArray<uint16_t> from(in);
  DeviceArray<uint16_t> to(in.size());
  const TensorMap map = make_tensor_map({.name = "in",
                                         .base = reinterpret_cast<const bf16*>(from.data()),
                                         .rank = 2,
                                         .dim = {64, 16},
                                         .stride_bytes = {128},
                                         .box = {64, 8}});
  simt::run_grid(
      "tma", {1}, {32}, 8 << 10, [&] { tma_kernel<F>(to.data(), map); }, gpu_kind(Capability));
  const std::vector<uint16_t> out = to.host();
  int wrong = 0;
  for (size_t i = 0; i < in.size(); ++i) wrong += out[i] != in[i];
  return wrong;
}

// --- A ring of two stages: thread 0 copies by bulk_load, warps 1 to 3 sum 10 tiles.

constexpr int kRingTiles = 10, kRingStages = 2, kRingElements = 96;

template <Flaw F>
__global__ void ring_kernel(float* out, const float* in) {
  GPU_SHARED(float, tile, [kRingStages][kRingElements]);
  GPU_SHARED(Mbarrier, full, [kRingStages]);
  GPU_SHARED(Mbarrier, empty, [kRingStages]);
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRingStages; ++i) {
      mbarrier_init(&full[i], 1);
      mbarrier_init(&empty[i], F == Flaw::kTooFewArrivals    ? 1
                               : F == Flaw::kTooManyArrivals ? 4
                                                             : 3);
    }
    mbarrier_init_fence();
  }
  sync_block();
  if (warp() == 0) {
    if (lane() != 0) return;
    for (int i = 0; i < kRingTiles; ++i) {
      const int stage = i % kRingStages, round = i / kRingStages;
      if constexpr (F != Flaw::kNoEmptyWait)
        mbarrier_wait(&empty[stage], uint32_t(F == Flaw::kWrongParity ? round & 1 : ~round & 1));
      mbarrier_arrive_expect(&full[stage], kRingElements * 4);
      bulk_load(tile[stage], in + i * kRingElements, kRingElements * 4, &full[stage]);
    }
    return;
  }
  float sum = 0;
  for (int i = 0; i < kRingTiles; ++i) {
    const int stage = i % kRingStages, round = i / kRingStages;
    if constexpr (F != Flaw::kNoWait) mbarrier_wait(&full[stage], uint32_t(round & 1));
    if constexpr (F == Flaw::kReleaseTooEarly) {
      if (lane() == 0) mbarrier_arrive(&empty[stage]);
      sync_warp();
    }
    sum += tile[stage][int(threadIdx.x) - kWarp];
    if constexpr (F != Flaw::kReleaseTooEarly && F != Flaw::kNoRelease) {
      if constexpr (F != Flaw::kNoBarrier) sync_warp();
      if (lane() == 0) mbarrier_arrive(&empty[stage]);
    }
  }
  out[int(threadIdx.x) - kWarp] = sum;
}

template <Flaw F>
int run_ring() {
  std::vector<float> in(kRingTiles * kRingElements);
  for (size_t i = 0; i < in.size(); ++i) in[i] = float(i * 7 % 31);
  const DeviceArray<float> from(in);
  DeviceArray<float> to(kRingElements);
  simt::run_grid("ring", {1}, {128}, 0, [&] { ring_kernel<F>(to.data(), from.data()); });
  const std::vector<float> out = to.host();
  int wrong = 0;
  for (size_t i = 0; i < kRingElements; ++i) {
    float want = 0;
    for (size_t j = 0; j < kRingTiles; ++j) want += in[j * kRingElements + i];
    wrong += out[i] != want;
  }
  return wrong;
}

// --- TMA stores: two tiles through one buffer.

template <Flaw F>
__global__ void store_kernel(const __grid_constant__ TensorMap map) {
  GPU_DYNAMIC_SHARED(uint16_t, tile);
  const int t = thread_in_block();
  for (int round = 0; round < 2; ++round) {
    for (int i = t; i < kTileElements; i += 64) {
      const int row = i / 64;
      tile[row * 64 + (i / 8 % 8 ^ row) * 8 + i % 8] = uint16_t(round * kTileElements + i + 1);
    }
    if constexpr (F != Flaw::kNoProxyFence) fence_proxy_async();
    if constexpr (F != Flaw::kNoBarrier) sync_block();
    if (t == 0) {
      tma_store(&map, tile, 0, round * 8);
      if constexpr (F != Flaw::kNoCommit) bulk_commit();
      if (F != Flaw::kNoReadWait && (F != Flaw::kEndsBeforeRead || round == 0)) bulk_wait_read<0>();
    }
    sync_block();
  }
  if (F == Flaw::kNoReadWait && t == 0) bulk_wait_read<0>();
}

template <Flaw F, int Capability = 90>
int run_store() {
  DeviceArray<uint16_t> to(2 * kTileElements);
  const TensorMap map = make_tensor_map({.name = "out",
                                         .base = reinterpret_cast<const bf16*>(to.data()),
                                         .rank = 2,
                                         .dim = {64, 16},
                                         .stride_bytes = {128},
                                         .box = {64, 8}});
  simt::run_grid(
      "store", {1}, {64}, kTileElements * 2, [&] { store_kernel<F>(map); }, gpu_kind(Capability));
  const std::vector<uint16_t> out = to.host();
  int wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) wrong += out[i] != uint16_t(i + 1);
  return wrong;
}

constexpr test::Seen kNo = test::Seen::kNo, kWrong = test::Seen::kWrong,
                     kError = test::Seen::kError;

// clang-format off
const Bug kRight[] = {
    {"cp.async", run_cp_async<Flaw::kNone>, kNo, kNo, kNo},
    {"cp.async on 8.0", run_cp_async<Flaw::kNone, 80>, kNo, kNo, kNo},
    {"cp.async on an mbarrier", run_cp_async_mbarrier<Flaw::kNone>, kNo, kNo, kNo},
    {"TMA", run_tma<Flaw::kNone>, kNo, kNo, kNo},
    {"ring", run_ring<Flaw::kNone>, kNo, kNo, kNo},
    {"TMA store", run_store<Flaw::kNone>, kNo, kNo, kNo},
};

// forward, reverse, random
const Bug kBugs[] = {
    {"cp.async: no wait",                           run_cp_async<Flaw::kNoWait>,                          kWrong, kNo,    kWrong},
    {"cp.async: no barrier",                        run_cp_async<Flaw::kNoBarrier>,                       kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"cp.async: no commit",                         run_cp_async<Flaw::kNoCommit>,                        kWrong, kWrong, kWrong},
    {"cp.async: waits for one group too few",       run_cp_async<Flaw::kWaitsForOneLess>,                 kWrong, kNo,    kWrong},
    {"cp.async: buffer reused before it is read",   run_cp_async<Flaw::kReusedBeforeRead>,                kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"cp.async: misaligned",                        run_cp_async<Flaw::kMisaligned>,                      kError, kError, kError, "multiple of 16"},
    {"cp.async on an mbarrier: no wait",            run_cp_async_mbarrier<Flaw::kNoWait>,                 kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"cp.async on an mbarrier: an arrival too few", run_cp_async_mbarrier<Flaw::kTooFewArrivals>,         kWrong, kNo,    kWrong},
    {"cp.async on an mbarrier: an arrival too many", run_cp_async_mbarrier<Flaw::kTooManyArrivals>,        kError, kError, kError, "deadlock"},
    {"TMA: no wait",                                run_tma<Flaw::kNoWait>,                               kError, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"TMA: wrong parity",                           run_tma<Flaw::kWrongParity>,                          kError, kError, kError},
    {"TMA: too few bytes expected",                 run_tma<Flaw::kTooFewBytes>,                          kError, kError, kError, "512 bytes more"},
    {"TMA: too many bytes expected",                run_tma<Flaw::kTooManyBytes>,                         kError, kError, kError, "deadlock"},
    {"TMA: bytes of two copies, one expected",      run_tma<Flaw::kWrongBytesNextPhase>,                  kError, kNo,    kError},
    {"TMA: mbarrier not initialised",               run_tma<Flaw::kUninitialised>,                        kError, kError, kError, "not initialised"},
    {"TMA: mbarrier initialised again in use",      run_tma<Flaw::kInitInUse>,                            kError, kError, kError},
    {"TMA: tile misaligned",                        run_tma<Flaw::kMisaligned>,                           kError, kError, kError, "multiple of 1024"},
    {"TMA: rank",                                   run_tma<Flaw::kWrongRank>,                            kError, kError, kError, "rank 2"},
    {"TMA: a row begins inside 16 bytes",           run_tma<Flaw::kRowInsidePiece>,                       kError, kError, kError, "multiple of 8"},
    {"TMA: swizzle ignored",                        run_tma<Flaw::kSwizzleIgnored>,                       kWrong, kWrong, kWrong},
    {"TMA: buffer reused before it is read",        run_tma<Flaw::kReusedBeforeRead>,                     kWrong, kError, kWrong},
    {"ring: no wait for empty",                     run_ring<Flaw::kNoEmptyWait>,                         kError, kError, kError},
    {"ring: no wait for full",                      run_ring<Flaw::kNoWait>,                              kError, kError, kWrong},
    {"ring: no release",                            run_ring<Flaw::kNoRelease>,                           kError, kError, kError, "deadlock"},
    {"ring: released before it is read",            run_ring<Flaw::kReleaseTooEarly>,                     kNo,    kNo,    kError, "", Asan::kQuiet, kError},
    {"ring: an arrival too few",                    run_ring<Flaw::kTooFewArrivals>,                      kNo,    kNo,    kError},
    {"ring: an arrival too many",                   run_ring<Flaw::kTooManyArrivals>,                     kError, kError, kError, "deadlock"},
    {"ring: wrong parity",                          run_ring<Flaw::kWrongParity>,                         kError, kError, kError, "deadlock"},
    {"TMA store: no barrier",                       run_store<Flaw::kNoBarrier>,                          kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"TMA store: no commit",                        run_store<Flaw::kNoCommit>,                           kError, kError, kError, "bulk_commit"},
    {"TMA store: buffer reused before it is read",  run_store<Flaw::kNoReadWait>,                         kWrong, kNo,    kNo},
    {"TMA store: the block ends before it is read", run_store<Flaw::kEndsBeforeRead>,                     kError, kError, kError, "bulk_wait_read"},
    {"TMA on 8.9",                                  run_tma<Flaw::kNone, 89>,                             kError, kError, kError, "an mbarrier needs compute capability 9.0, this GPU has 8.9"},
    {"TMA store on 8.0",                            run_store<Flaw::kNone, 80>,                           kError, kError, kError, "needs compute capability 9.0, this GPU has 8.0"},
    {"TMA store: no fence_proxy_async",             run_store<Flaw::kNoProxyFence>,                       kNo,    kNo,    kNo, "", Asan::kQuiet, kError},
};
// clang-format on

TEST_CASE("right asynchronous copies are right under every schedule") {
  test::require_never_seen(kRight);
}

TEST_CASE("bugs of asynchronous copies are seen") {
  test::require_seen(kBugs);
}

}  // namespace
}  // namespace assay
