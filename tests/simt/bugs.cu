// Kernels with one bug each in synchronisation, memory accesses or the launch.
#include <vector>

#include "cuda/gpu.h"
#include "tests/catch.h"
#include "tests/simt/bug_matrix.h"
#include "tests/simt/run.h"

namespace assay {
namespace {

using namespace gpu;
using test::Asan;
using test::DeviceArray;

enum class Bug {
  kNone,
  kNoSyncBeforeRead,
  kNoSyncBeforeWrite,
  kNoSyncWarp,
  kDivergentBarrier,
  kUnequalBarriers,
  kShuffleInBranch,
  kShufflesOnTwoLines,
  kShuffleFromExited,
  kMaskLacksLane,
  kWidth,
  kWriteBehindStatic,
  kWriteBehindDynamic,
  kReadBehindStatic,
  kUninitialisedShared,
  kUninitialisedGlobal,
  kLastThreadExits,
  kCountTooLarge,
  kCountsDiffer,
  kNoSuchBarrier,
  kWriteBehindGlobal,
  kFarBehindGlobal,
  kReadBehindGlobal,
  kFreed,
  kNull,
  kMisaligned,
  kStackTooLarge,
  kNotAtomic,
  kTwoAdders,
  kNeverEnds,
};

// Hides a value from the compiler, so that it cannot see the bug.
int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

// --- Shared memory and barriers. 64 threads reverse two rows through one buffer.

constexpr int kThreads = 64;

template <Bug B>
__global__ void reverse_kernel(float* out, const float* in) {
  GPU_SHARED(float, row, [kThreads]);
  GPU_SHARED(float, other, [1]);
  GPU_DYNAMIC_SHARED(float, dynamic);
  const int t = int(threadIdx.x);
  if (t == 0) other[0] = 0;
  dynamic[t] = 0;
  for (int round = 0; round < 2; ++round) {
    const int at = round * kThreads + t;
    if (B != Bug::kUninitialisedShared || t != 5) row[t] = in[at];
    if (B == Bug::kWriteBehindStatic) row[opaque(kThreads + t / 63)] = 1.0f;
    if (B == Bug::kWriteBehindDynamic) dynamic[opaque(kThreads + t / 63)] = 1.0f;
    if (B != Bug::kNoSyncBeforeRead) sync_block();
    const int from = B == Bug::kReadBehindStatic ? opaque(kThreads - t) : kThreads - 1 - t;
    out[at] = row[from];
    if (B != Bug::kNoSyncBeforeWrite) sync_block();
  }
}

template <Bug B>
int run_reverse() {
  std::vector<float> in(2 * kThreads);
  for (size_t i = 0; i < in.size(); ++i) in[i] = float(i);
  const DeviceArray<float> from(in), to(in.size());
  simt::run_grid("reverse", {1}, {kThreads}, kThreads * sizeof(float),
                 [&] { reverse_kernel<B>(to.data(), from.data()); });
  const std::vector<float> got = to.host();
  int wrong = 0;
  for (int i = 0; i < 2 * kThreads; ++i)
    wrong += got[size_t(i)] != float(i / kThreads * kThreads + kThreads - 1 - i % kThreads);
  return wrong;
}

// --- Waiting. Every variant ends with out[t] = t + 1.

template <Bug B>
__global__ void wait_kernel(int* out) {
  GPU_SHARED(int, value, [kThreads]);
  const int t = int(threadIdx.x);
  if (B == Bug::kLastThreadExits && t == kThreads - 1) return;
  value[t] = t;
  if (B == Bug::kNoSyncWarp || B == Bug::kNone) {
    // Swaps with the neighbour and back.
    for (int i = 0; i < 2; ++i) {
      if (B == Bug::kNone) sync_warp();
      const int other = value[t ^ 1];
      if (B == Bug::kNone) sync_warp();
      value[t] = other;
    }
  }
  if (B == Bug::kDivergentBarrier) {
    if (t < 32) {
      sync_block();
    } else {
      sync_block();
    }
  }
  if (B == Bug::kUnequalBarriers)
    for (int i = 0; i < 1 + t / 32; ++i) sync_block();
  if (B == Bug::kShuffleInBranch && t % 2 == 0) value[t] = shuffle(value[t], lane());
  if (B == Bug::kShufflesOnTwoLines) {
    if (t % 2 == 0) {
      value[t] = shuffle(value[t], lane());
    } else {
      value[t] = shuffle(value[t], lane());
    }
  }
  if (B == Bug::kShuffleFromExited) {
    if (t == 40) return;
    value[t] = shuffle(value[t], opaque(8)) == 0 ? t : t;
  }
  if (B == Bug::kMaskLacksLane) sync_warp(0x0000FFFFu);
  if (B == Bug::kWidth) value[t] = shuffle(value[t], lane(), opaque(31));
  if (B == Bug::kCountTooLarge) named_barrier_sync(1, 96);
  if (B == Bug::kLastThreadExits) named_barrier_sync(1, kThreads);
  if (B == Bug::kCountsDiffer) named_barrier_sync(1, t < 32 ? 64 : 96);
  if (B == Bug::kNoSuchBarrier) named_barrier_sync(opaque(16), kThreads);
  while (B == Bug::kNeverEnds && opaque(1)) sync_warp();
  sync_block();
  out[t] = value[t] + 1;
}

template <Bug B>
int run_wait() {
  const DeviceArray<int> to(kThreads);
  simt::set_switch_limit(100'000);
  simt::run_grid("wait", {1}, {kThreads}, 0, [&] { wait_kernel<B>(to.data()); });
  const std::vector<int> got = to.host();
  int wrong = 0;
  for (int t = 0; t < kThreads; ++t) wrong += got[size_t(t)] != t + 1;
  return wrong;
}

// --- Global memory. Blocks of 32 threads double 40 numbers.

constexpr int kNumbers = 40;

template <Bug B>
__global__ void double_kernel(float* out, const float* in, float* freed) {
  const int i = int(blockIdx.x * blockDim.x + threadIdx.x);
  if (B == Bug::kFreed && i == 3) out = freed;
  if (B == Bug::kNull && i == 3) out = nullptr;
  if (B == Bug::kWriteBehindGlobal && i == kNumbers) out[opaque(kNumbers)] = 1;
  if (B == Bug::kFarBehindGlobal && i == 0) out[opaque(10000)] = 1;
  if (B == Bug::kStackTooLarge) {
    float local[64 << 10];
    for (int k = opaque(64 << 10) - 1; k >= 0; --k) local[k] = in[0];
    asm volatile("" ::"r"(local) : "memory");
  }
  if (i >= kNumbers) return;
  const int from = B == Bug::kReadBehindGlobal ? opaque(i + 1) : i;
  out[i] = 2 * in[from];
}

template <Bug B>
int run_double() {
  std::vector<float> in(kNumbers);
  for (size_t i = 0; i < in.size(); ++i) in[i] = float(i);
  const DeviceArray<float> to(kNumbers, 256);
  float* freed;
  {
    const DeviceArray<float> gone(kNumbers);
    freed = gone.data();
  }
  const DeviceArray<float> unset(kNumbers), set(in);
  const float* from = B == Bug::kUninitialisedGlobal ? unset.data() : set.data();
  simt::run_grid("double", {2}, {32}, 0, [&] { double_kernel<B>(to.data(), from, freed); });
  const std::vector<float> got = to.host();
  int wrong = 0;
  for (int i = 0; i < kNumbers; ++i) wrong += got[size_t(i)] != 2 * float(i);
  return wrong;
}

template <Bug B>
__global__ void copy_vector_kernel(float* out, const float* in) {
  const int i = int(threadIdx.x);
  const int shift = B == Bug::kMisaligned ? opaque(1) : 0;
  store_vec(out + 4 * i, load_vec<4>(in + 4 * i + shift));
}

template <Bug B>
int run_copy_vector() {
  const DeviceArray<float> from(std::vector<float>(68, 1.0f)), to(64);
  simt::run_grid("copy_vector", {1}, {16}, 0,
                 [&] { copy_vector_kernel<B>(to.data(), from.data()); });
  int wrong = 0;
  for (float x : to.host()) wrong += x != 1.0f;
  return wrong;
}

// --- The order of threads and blocks.

template <Bug B>
__global__ void count_kernel(int32_t* total) {
  if (B == Bug::kNotAtomic) {
    *total = *total + 1;
  } else {
    atomic_add(total, 1);
  }
}

template <Bug B>
int run_count() {
  const DeviceArray<int32_t> total(1);
  simt::device_fill(total.data(), 0, 4);
  simt::run_grid("count", {2}, {32}, 0, [&] { count_kernel<B>(total.data()); });
  return total.host()[0] != 64;
}

template <Bug B>
__global__ void raise_kernel(uint32_t* most) {
  const uint32_t mine = blockIdx.x * 32 + threadIdx.x;
  const uint32_t seen = B == Bug::kNotAtomic ? *most : atomic_load(most);
  if (seen < mine) atomic_max(most, mine);
}

template <Bug B>
int run_raise() {
  const DeviceArray<uint32_t> most(1);
  simt::device_fill(most.data(), 0, 4);
  simt::run_grid("raise", {2}, {32}, 0, [&] { raise_kernel<B>(most.data()); });
  return most.host()[0] != 63;
}

// Four floats that one thread adds to, or two.
template <Bug B>
__global__ void sum_kernel(float* sums) {
  if (B == Bug::kTwoAdders || threadIdx.x == 0) reduce_add(sums, Vec<float, 4>{{1, 2, 3, 4}});
}

template <Bug B>
int run_sum() {
  const DeviceArray<float> sums(std::vector<float>(4, 1.0f));
  const float times = B == Bug::kTwoAdders ? 2.0f : 1.0f;
  simt::run_grid("sum", {1}, {2}, 0, [&] { sum_kernel<B>(sums.data()); });
  int wrong = 0;
  for (int i = 0; i < 4; ++i) wrong += sums.host()[size_t(i)] != 1 + times * float(i + 1);
  return wrong;
}
int run_sum_on_ampere() {
  const DeviceArray<float> sums(4);
  simt::run_grid(
      "sum", {1}, {1}, 0, [&] { sum_kernel<Bug::kNone>(sums.data()); }, gpu::gpu_kind(80));
  return 0;
}

// Each block reads what the previous block wrote, which is correct in one order of the blocks only.
__global__ void chain_kernel(int32_t* out) {
  const unsigned b = blockIdx.x;
  out[b] = b == 0 ? 0 : out[b - 1] + 1;
}
int run_chain() {
  const DeviceArray<int32_t> out(8);
  simt::run_grid("chain", {8}, {1}, 0, [&] { chain_kernel(out.data()); });
  int wrong = 0;
  for (int b = 0; b < 8; ++b) wrong += out.host()[size_t(b)] != b;
  return wrong;
}

// Positions by order of arrival, which depend on the schedule.
__global__ void tickets_kernel(int32_t* out, int32_t* next) {
  out[atomic_add(next, 1)] = int(threadIdx.x);
}
int run_tickets() {
  const DeviceArray<int32_t> out(32), next(1);
  simt::device_fill(next.data(), 0, 4);
  simt::run_grid("tickets", {1}, {32}, 0, [&] { tickets_kernel(out.data(), next.data()); });
  int wrong = 0;
  for (int i = 0; i < 32; ++i) wrong += out.host()[size_t(i)] != i;
  return wrong;
}

// Thread 0 writes what all read without a barrier, which is correct only if thread 0 runs first.
__global__ void broadcast_kernel(int32_t* out) {
  GPU_SHARED(int32_t, value, );
  if (threadIdx.x == 0) value = 7;
  out[threadIdx.x] = value;
}
int run_broadcast() {
  const DeviceArray<int32_t> out(64);
  simt::run_grid("broadcast", {1}, {64}, 0, [&] { broadcast_kernel(out.data()); });
  int wrong = 0;
  for (int32_t v : out.host()) wrong += v != 7;
  return wrong;
}

// --- Launches and sizes.

__global__ void large_static_kernel() {
  GPU_SHARED(float, large, [13 << 10]);
  large[threadIdx.x] = 0;
}

int launch_empty(dim3 grid, dim3 block, size_t shared_bytes, int capability = 90) {
  simt::run_grid(
      "empty", grid, block, shared_bytes, [] {}, gpu::gpu_kind(capability));
  return 0;
}
int run_large_static() {
  simt::run_grid("large_static", {1}, {32}, 0, [] { large_static_kernel(); });
  return 0;
}
// The static array ends at byte 4; dynamic shared memory begins at 1024.
int run_static_before_dynamic() {
  simt::run_grid("static_before_dynamic", {1}, {1}, (227 << 10) - 1020, [] {
    GPU_SHARED(float, one, [1]);
    one[threadIdx.x] = 0;
  });
  return 0;
}
int run_static_and_dynamic() {
  simt::run_grid("static_and_dynamic", {1}, {32}, 226 << 10, [] {
    GPU_SHARED(float, more, [512]);
    more[threadIdx.x] = 0;
  });
  return 0;
}
int run_copy_beyond() {
  const DeviceArray<float> a(10);
  std::vector<float> b(20);
  simt::device_copy(a.data(), b.data(), 20 * sizeof(float));
  return 0;
}

constexpr auto kNo = test::Seen::kNo, kWrong = test::Seen::kWrong, kError = test::Seen::kError;

const test::Bug kRight[] = {
    {"reverse", run_reverse<Bug::kNone>, kNo, kNo, kNo},
    {"wait", run_wait<Bug::kNone>, kNo, kNo, kNo},
    {"double", run_double<Bug::kNone>, kNo, kNo, kNo},
    {"copy vectors", run_copy_vector<Bug::kNone>, kNo, kNo, kNo},
    {"count", run_count<Bug::kNone>, kNo, kNo, kNo},
    {"raise", run_raise<Bug::kNone>, kNo, kNo, kNo},
    {"sum", run_sum<Bug::kNone>, kNo, kNo, kNo},
    {"largest",
     [] {
       return launch_empty({1}, {32, 32}, 227 << 10);
     },
     kNo, kNo, kNo},
};

// clang-format off
const test::Bug kBugs[] = {
    {"no sync_block before shared memory is read",    run_reverse<Bug::kNoSyncBeforeRead>,    kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"no sync_block before it is written again",      run_reverse<Bug::kNoSyncBeforeWrite>,   kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"no sync_warp",                                  run_wait<Bug::kNoSyncWarp>,             kWrong, kWrong, kWrong, "", Asan::kQuiet, kError},
    {"one thread sets, none waits",                   run_broadcast,                          kNo,    kWrong, kWrong, "", Asan::kQuiet, kError},
    {"sync_block in two branches",                    run_wait<Bug::kDivergentBarrier>,       kError, kError, kError, "divergent: sync_block"},
    {"unequal numbers of sync_block",                 run_wait<Bug::kUnequalBarriers>,        kError, kError, kError, "divergent: sync_block"},
    {"shuffle in a branch",                           run_wait<Bug::kShuffleInBranch>,        kError, kError, kError, "threads 0-62 by 2: shuffle at"},
    {"shuffles in two branches",                      run_wait<Bug::kShufflesOnTwoLines>,     kError, kError, kError, "divergent: lane"},
    {"shuffle reads a lane that has exited",          run_wait<Bug::kShuffleFromExited>,      kError, kError, kError, "reads lane 8, which is absent"},
    {"sync_warp's mask lacks the lane",               run_wait<Bug::kMaskLacksLane>,          kError, kError, kError, "mask 0000ffff lacks"},
    {"shuffle's width",                               run_wait<Bug::kWidth>,                  kError, kError, kError, "width 31"},
    {"named barrier: too many threads counted",       run_wait<Bug::kCountTooLarge>,          kError, kError, kError, "deadlock"},
    {"named barrier: a thread has exited",            run_wait<Bug::kLastThreadExits>,        kError, kError, kError, "threads 63: exited"},
    {"named barrier: two counts",                     run_wait<Bug::kCountsDiffer>,           kError, kError, kError, "barrier 1 is for"},
    {"named barrier: number",                         run_wait<Bug::kNoSuchBarrier>,          kError, kError, kError, "barrier 16"},
    {"waits forever",                                 run_wait<Bug::kNeverEnds>,              kError, kError, kError, "livelock"},
    {"shared memory: one element past an array",      run_reverse<Bug::kWriteBehindStatic>,   kError, kError, kError, "past the end of row (256 bytes), at byte 256", Asan::kReports},
    {"shared memory: one past the dynamic arrays",    run_reverse<Bug::kWriteBehindDynamic>,  kError, kError, kError, "past the end of dynamic", Asan::kReports},
    {"shared memory: read past an array",             run_reverse<Bug::kReadBehindStatic>,    kWrong, kWrong, kWrong, "", Asan::kReports},
    {"shared memory: never written",                  run_reverse<Bug::kUninitialisedShared>, kWrong, kWrong, kWrong},
    {"global memory: never written",                  run_double<Bug::kUninitialisedGlobal>,  kWrong, kWrong, kWrong},
    {"global memory: one element past the end",       run_double<Bug::kWriteBehindGlobal>,    kError, kError, kError, "allocation of 160 bytes", Asan::kReports},
    {"global memory: far past the end",               run_double<Bug::kFarBehindGlobal>,      kError, kError, kError, "memory fault", Asan::kReports},
    {"global memory: read past the end",              run_double<Bug::kReadBehindGlobal>,     kError, kError, kError, "byte 160", Asan::kReports},
    {"global memory: freed",                          run_double<Bug::kFreed>,                kError, kError, kError, "memory fault", Asan::kReports},
    {"null pointer",                                  run_double<Bug::kNull>,                 kError, kError, kError, "memory fault", Asan::kReports},
    {"vector off its alignment",                      run_copy_vector<Bug::kMisaligned>,      kError, kError, kError, "not aligned", Asan::kReports},
    {"local variables of 256 KiB",                    run_double<Bug::kStackTooLarge>,        kError, kError, kError, "memory fault", Asan::kReports},
    {"addition that is not atomic",                   run_count<Bug::kNotAtomic>,             kNo,    kNo,    kNo,    "", Asan::kQuiet, kError},
    {"two threads add to the same floats",            run_sum<Bug::kTwoAdders>,               kNo,    kNo,    kNo,    "", Asan::kQuiet, kError},
    {"floats added in memory on 8.0",                 run_sum_on_ampere,                      kError, kError, kError, "reduce_add needs compute capability 9.0"},
    {"read that is not atomic",                       run_raise<Bug::kNotAtomic>,             kNo,    kNo,    kNo,    "", Asan::kQuiet, kError},
    {"blocks in order",                               run_chain,                              kNo,    kWrong, kWrong, "", Asan::kQuiet, kError},
    {"threads in order",                              run_tickets,                            kNo,    kWrong, kWrong},
    {"launch: no block",                              [] { return launch_empty({0}, {32}, 0); },                kError, kError, kError, "grid (0,1,1)"},
    {"launch: 1025 threads",                          [] { return launch_empty({1}, {1025}, 0); },              kError, kError, kError, "block (1025,1,1)"},
    {"launch: 2048 threads",                          [] { return launch_empty({1}, {64, 32}, 0); },            kError, kError, kError, "1 to 1024 threads"},
    {"launch: 228 KiB of shared memory",              [] { return launch_empty({1}, {32}, 228 << 10); },        kError, kError, kError, "at most 232448"},
    {"launch: 70000 blocks along y",                  [] { return launch_empty({1, 70000}, {32}, 0); },         kError, kError, kError, "65535"},
    {"52 KiB of static shared memory",                run_large_static,                       kError, kError, kError, "at most 49152"},
    {"static and dynamic shared memory together",     run_static_and_dynamic,                 kError, kError, kError, "at most 232448"},
    {"static shared memory before dynamic",           run_static_before_dynamic,              kError, kError, kError, "at most 232448"},
    {"launch: 100 KiB of shared memory on 8.6",       [] { return launch_empty({1}, {32}, 100 << 10, 86); },    kError, kError, kError, "at most 101376"},
    {"launch: 164 KiB of shared memory on 8.0",       [] { return launch_empty({1}, {32}, 164 << 10, 80); },    kError, kError, kError, "at most 166912"},
    {"copy longer than the allocation",               run_copy_beyond,                        kError, kError, kError, "allocation of 40"},
};
// clang-format on

TEST_CASE("right kernels are right under every schedule") {
  test::require_never_seen(kRight);
}

TEST_CASE("bugs of threads, memory and launches are seen") {
  test::require_seen(kBugs);
}

}  // namespace
}  // namespace assay
