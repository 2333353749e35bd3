// Kernels with a bug in their use of clusters. kNone is the correct kernel.
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
  kNoSyncAtBegin,
  kNoSyncAtEnd,
  kNoEmptyWait,
  kReleasesOwnOnly,
  kTooFewArrivals,
  kTooManyArrivals,
  kExpectsOwnHalf,
  kExpectsTooMuch,
  kLoadsForItself,
  kAbsentBlock,
  kArrivesAtAbsentBlock,
  kTooFar,
  kGlobalBarrier,
  kNoWait,
  kWaitsWithoutArrival,
  kArrivesTwice,
  kLanesApart,
  kReadsWithoutBarrier,
  kReusedBeforeRead,
};

// --- Two blocks fill one stage together: each loads one of two boxes of 8 x 64 elements for both.
// Warp 0 copies, warp 1 stores what has come. A stage is free when the consumers of both have read
// it.

constexpr int kBox = 8 * 64, kBoxBytes = kBox * 2, kRounds = 4;

template <Flaw F>
__global__ void multicast_kernel(uint16_t* out, const __grid_constant__ TensorMap map) {
  GPU_DYNAMIC_SHARED(uint16_t, stage);
  GPU_SHARED(Mbarrier, full, [1]);
  GPU_SHARED(Mbarrier, empty, [1]);
  if (threadIdx.x == 0) {
    mbarrier_init(full, 1);
    const bool once = F == Flaw::kTooFewArrivals || F == Flaw::kReleasesOwnOnly;
    mbarrier_init(empty, once ? 1 : F == Flaw::kTooManyArrivals ? 3 : 2);
    mbarrier_init_fence();
  }
  if constexpr (F == Flaw::kNoSyncAtBegin) {
    sync_block();
  } else {
    sync_cluster();
  }
  const int rank = cluster_rank();
  if (threadIdx.x == 0) {
    for (int round = 0; round < kRounds; ++round) {
      if constexpr (F != Flaw::kNoEmptyWait) mbarrier_wait(empty, uint32_t(~round & 1));
      mbarrier_arrive_expect(full, F == Flaw::kExpectsOwnHalf   ? kBoxBytes
                                   : F == Flaw::kExpectsTooMuch ? 3 * kBoxBytes
                                                                : 2 * kBoxBytes);
      const uint32_t blocks = F == Flaw::kLoadsForItself ? 1u << rank
                              : F == Flaw::kAbsentBlock  ? 7u
                                                         : 3u;
      tma_load_multicast(stage + rank * kBox + (F == Flaw::kTooFar ? 64 * kBox : 0), &map, full,
                         blocks, 0, (2 * round + rank) * 8);
    }
  } else if (warp() == 1) {
    for (int round = 0; round < kRounds; ++round) {
      mbarrier_wait(full, uint32_t(round & 1));
      uint16_t* const to = out + (int(blockIdx.x) * kRounds + round) * 2 * kBox;
      for (int i = lane(); i < 2 * kBox; i += kWarp) {
        const int row = i / 64;
        to[i] = stage[row * 64 + (i / 8 % 8 ^ row % 8) * 8 + i % 8];
      }
      sync_warp();
      if constexpr (F == Flaw::kReleasesOwnOnly) {
        if (lane() == 0) mbarrier_arrive_cluster(empty, rank);
      } else if (lane() < (F == Flaw::kArrivesAtAbsentBlock ? 3 : 2)) {
        mbarrier_arrive_cluster(empty, lane());
      }
    }
  }
  if constexpr (F != Flaw::kNoSyncAtEnd) sync_cluster();
}

template <Flaw F, int Capability = 90, unsigned Cluster = 2>
int run_multicast() {
  constexpr int kBlocks = 4;
  std::vector<uint16_t> in(size_t(2 * kBox * kRounds));
  for (size_t i = 0; i < in.size(); ++i) in[i] = uint16_t(i + 1);
  const DeviceArray<uint16_t> from(in);
  DeviceArray<uint16_t> to(kBlocks * in.size());
  const TensorMap map = make_tensor_map({.name = "in",
                                         .base = reinterpret_cast<const bf16*>(from.data()),
                                         .rank = 2,
                                         .dim = {64, 16 * kRounds},
                                         .stride_bytes = {128},
                                         .box = {64, 8}});
  simt::run_grid(
      "multicast", {kBlocks}, {64}, 2 * kBoxBytes, [&] { multicast_kernel<F>(to.data(), map); },
      gpu_kind(Capability), Cluster);
  const std::vector<uint16_t> out = to.host();
  int wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) wrong += out[i] != in[i % in.size()];
  return wrong;
}

// --- Block 0 loads two boxes for both, one after the other to the same place, which both store.

template <Flaw F>
__global__ void twice_kernel(uint16_t* out, const __grid_constant__ TensorMap map) {
  GPU_DYNAMIC_SHARED(uint16_t, tile);
  GPU_SHARED(Mbarrier, full, [2]);
  if (threadIdx.x == 0) {
    for (int round = 0; round < 2; ++round) mbarrier_init(&full[round], 1);
    mbarrier_init_fence();
    for (int round = 0; round < 2; ++round) mbarrier_arrive_expect(&full[round], kBoxBytes);
  }
  if constexpr (F != Flaw::kWaitsWithoutArrival) cluster_arrive();
  if constexpr (F == Flaw::kArrivesTwice) cluster_arrive();
  if (F == Flaw::kLanesApart && lane() < 16) {
    cluster_wait();
  } else {
    cluster_wait();
  }
  const int rank = cluster_rank();
  for (int round = 0; round < 2; ++round) {
    Mbarrier* const barrier =
        F == Flaw::kGlobalBarrier ? reinterpret_cast<Mbarrier*>(out) : &full[round];
    if (rank == 0 && threadIdx.x == 0) tma_load_multicast(tile, &map, barrier, 3, 0, 8 * round);
    if (F != Flaw::kNoWait || rank == 0 || round == 0) mbarrier_wait(&full[round], 0);
    uint16_t* const to = out + (rank * 2 + round) * kBox;
    for (int i = lane(); i < kBox; i += kWarp) to[i] = tile[i];
    if constexpr (F == Flaw::kReusedBeforeRead) {
      sync_block();
    } else if (round == 0) {
      sync_cluster();
    }
  }
}

template <Flaw F>
int run_twice() {
  std::vector<uint16_t> in(size_t{2 * kBox}, 7);
  for (size_t i = 0; i < size_t{kBox}; ++i) in[i] = 5;
  const DeviceArray<uint16_t> from(in);
  DeviceArray<uint16_t> to(2 * in.size());
  const TensorMap map = make_tensor_map({.name = "in",
                                         .base = reinterpret_cast<const bf16*>(from.data()),
                                         .rank = 2,
                                         .dim = {64, 16},
                                         .stride_bytes = {128},
                                         .box = {64, 8}});
  simt::run_grid(
      "twice", {2}, {32}, kBoxBytes, [&] { twice_kernel<F>(to.data(), map); }, gpu_kind(90), 2);
  const std::vector<uint16_t> out = to.host();
  int wrong = 0;
  for (size_t i = 0; i < out.size(); ++i) wrong += out[i] != in[i % in.size()];
  return wrong;
}

// --- Numbers that one block hands to the other through device memory.

template <Flaw F>
__global__ void exchange_kernel(int* out, int* numbers) {
  const int rank = cluster_rank(), t = thread_in_block();
  numbers[rank * 32 + t] = rank * 32 + t;
  if constexpr (F == Flaw::kReadsWithoutBarrier) {
    sync_block();
  } else {
    sync_cluster();
  }
  out[rank * 32 + t] = numbers[(1 - rank) * 32 + t];
}

template <Flaw F, int Capability = 90>
int run_exchange() {
  DeviceArray<int> out(64), numbers(64);
  simt::run_grid(
      "exchange", {2}, {32}, 0, [&] { exchange_kernel<F>(out.data(), numbers.data()); },
      gpu_kind(Capability), Capability < 90 ? 1 : 2);
  const std::vector<int> got = out.host();
  int wrong = 0;
  for (int i = 0; i < 64; ++i) wrong += got[size_t(i)] != (i ^ 32);
  return wrong;
}

constexpr test::Seen kNo = test::Seen::kNo, kWrong = test::Seen::kWrong,
                     kError = test::Seen::kError;

// clang-format off
const Bug kRight[] = {
    {"multicast", run_multicast<Flaw::kNone>, kNo, kNo, kNo},
    {"multicast to one place twice", run_twice<Flaw::kNone>,kNo, kNo, kNo},
    {"exchange", run_exchange<Flaw::kNone>, kNo, kNo, kNo},
};

// forward, reverse, random
const Bug kBugs[] = {
    {"multicast: no sync_cluster at the begin",       run_multicast<Flaw::kNoSyncAtBegin>,        kError, kError, kError},
    {"multicast: no sync_cluster at the end",         run_multicast<Flaw::kNoSyncAtEnd>,          kError, kError, kError, "which has ended", Asan::kQuiet, kError},
    {"multicast: no wait for empty",                  run_multicast<Flaw::kNoEmptyWait>,          kError, kError, kError},
    {"multicast: the peer's consumers are not awaited", run_multicast<Flaw::kReleasesOwnOnly>,    kError, kNo,    kError},
    {"multicast: an arrival too few",                 run_multicast<Flaw::kTooFewArrivals>,       kError, kError, kError},
    {"multicast: an arrival too many",                run_multicast<Flaw::kTooManyArrivals>,      kError, kError, kError, "deadlock"},
    {"multicast: only the block's own half expected", run_multicast<Flaw::kExpectsOwnHalf>,       kError, kError, kError},
    {"multicast: more bytes expected than come",      run_multicast<Flaw::kExpectsTooMuch>,       kError, kError, kError, "deadlock"},
    {"multicast: not to the peer",                    run_multicast<Flaw::kLoadsForItself>,       kError, kError, kError, "deadlock"},
    {"multicast: to a block that is not there",       run_multicast<Flaw::kAbsentBlock>,          kError, kError, kError, "rank 2, the cluster has 2 blocks"},
    {"multicast: arrives at a block that is not there", run_multicast<Flaw::kArrivesAtAbsentBlock>, kError, kError, kError, "rank 2, the cluster has 2 blocks"},
    {"multicast: past the end of shared memory",      run_multicast<Flaw::kTooFar>,               kError, kError, kError, "in no array"},
    {"multicast without a cluster",                   run_multicast<Flaw::kNone, 90, 1>,          kError, kError, kError, "rank 1, the cluster has 1 block"},
    {"multicast in clusters of 3 of 4 blocks",        run_multicast<Flaw::kNone, 90, 3>,          kError, kError, kError, "need 1 to 8 that divide the grid's 4"},
    {"multicast on 8.9",                              run_multicast<Flaw::kNone, 89>,             kError, kError, kError, "clusters need compute capability 9.0, this GPU has 8.9"},
    {"multicast: the barrier is in device memory",    run_twice<Flaw::kGlobalBarrier>,            kError, kError, kError, "not in the block's own shared memory"},
    {"multicast: the block ends before it has come",  run_twice<Flaw::kNoWait>,                   kError, kNo,    kError},
    {"multicast: before the peer has read the last",  run_twice<Flaw::kReusedBeforeRead>,         kNo,    kNo,    kWrong, "", Asan::kQuiet, kError},
    {"cluster barrier: waits without arrival",        run_twice<Flaw::kWaitsWithoutArrival>,      kError, kError, kError, "has not arrived"},
    {"cluster barrier: arrives twice",                run_twice<Flaw::kArrivesTwice>,             kError, kError, kError, "since its last arrival"},
    {"cluster barrier: in different branches of a warp", run_twice<Flaw::kLanesApart>,         kError, kError, kError, "divergent"},
    {"cluster: reads without a barrier",              run_exchange<Flaw::kReadsWithoutBarrier>,   kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"cluster wrappers on 8.0",                       run_exchange<Flaw::kNone, 80>,              kError, kError, kError, "needs compute capability 9.0, this GPU has 8.0"},
};
// clang-format on

TEST_CASE("right clusters are right under every schedule") {
  test::require_never_seen(kRight);
}

TEST_CASE("bugs of clusters are seen") {
  test::require_seen(kBugs);
}

}  // namespace
}  // namespace assay
