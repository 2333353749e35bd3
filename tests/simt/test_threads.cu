// Thread positions, barriers, shuffles, shared memory and atomics of the SIMT emulator, under
// several schedules.
#include "cuda/gpu.h"
#include "tests/catch.h"
#include "tests/simt/run.h"

namespace assay {
namespace {

using namespace gpu;
using test::DeviceArray;

template <typename F>
void under_all(F f) {
  for (const simt::Schedule s : test::some_schedules()) {
    simt::set_schedule(s);
    INFO("schedule " << simt::to_string(s));
    f();
  }
  simt::set_schedule({});
}

__global__ void positions_kernel(int* out, int width) {
  const int x = int(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = int(blockIdx.y * blockDim.y + threadIdx.y);
  out[y * width + x] = thread_in_block() * 1000 + int(gridDim.x) * 100 + lane();
}

TEST_CASE("every thread runs once with its own position") {
  under_all([] {
    const int width = 3 * 8, height = 2 * 5;
    DeviceArray<int> out(width * height);
    simt::run_grid("positions", {3, 2}, {8, 5}, 0, [&] { positions_kernel(out.data(), width); });
    const std::vector<int> got = out.host();
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x) {
        const int index = x % 8 + y % 5 * 8;
        REQUIRE(got[size_t(y * width + x)] == index * 1000 + 300 + index % 32);
      }
  });
}

__global__ void block_sum_kernel(float* out, const float* in, int n) {
  GPU_SHARED(float, scratch, [kWarp]);
  float sum = 0;
  for (int i = int(threadIdx.x); i < n; i += int(blockDim.x)) sum += in[blockIdx.x * n + i];
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) out[blockIdx.x] = sum;
}

TEST_CASE("a block's sum has the same bits under each schedule") {
  const int n = 1000, blocks = 5;
  std::vector<float> in(size_t(n * blocks));
  for (size_t i = 0; i < in.size(); ++i) in[i] = 1.0f / float(i + 1);
  std::vector<float> first;
  under_all([&] {
    DeviceArray<float> x(in), y(blocks);
    simt::run_grid("block_sum", {blocks}, {256}, 0,
                   [&] { block_sum_kernel(y.data(), x.data(), n); });
    if (first.empty()) first = y.host();
    REQUIRE(first == y.host());
    double sum = 0;
    for (int i = 0; i < n; ++i) sum += in[size_t(i)];
    REQUIRE(double(first[0]) == Approx(sum).epsilon(1e-5));
  });
}

__global__ void transpose_kernel(float* out, const float* in) {
  GPU_DYNAMIC_SHARED(float, tile);
  GPU_SHARED(int, total, );
  const int t = int(threadIdx.x);
  if (t == 0) total = 0;
  tile[t] = in[t];
  sync_block();
  out[t] = tile[t % 16 * 16 + t / 16];
  atomic_add(&total, t);
  sync_block();
  if (t == 0) out[256] = float(total);
}

TEST_CASE("dynamic and static shared memory") {
  std::vector<float> in(256);
  for (size_t i = 0; i < in.size(); ++i) in[i] = float(i);
  under_all([&] {
    DeviceArray<float> x(in), y(257);
    simt::run_grid("transpose", {1}, {256}, 256 * sizeof(float),
                   [&] { transpose_kernel(y.data(), x.data()); });
    const std::vector<float> got = y.host();
    for (int i = 0; i < 256; ++i) REQUIRE(got[size_t(i)] == float(i % 16 * 16 + i / 16));
    REQUIRE(got[256] == 255.0f * 256 / 2);
  });
}

__global__ void exchange_kernel(int* out) {
  const int l = lane();
  int* mine = out + 8 * l;
  mine[0] = shuffle(l * l, 5);
  mine[1] = shuffle_xor(l, 3);
  mine[2] = shuffle_up(l, 2);
  mine[3] = shuffle_down(l, 4, 8);
  mine[4] = int(ballot(l % 3 == 0));
  mine[5] = int(match_any(uint32_t(l % 5)));
  mine[6] = int(warp_max_u32(uint32_t(l * 7 % 32)));
  mine[7] = warp_exclusive_sum(l);
  sync_warp();
}

TEST_CASE("exchanges within a warp") {
  under_all([] {
    DeviceArray<int> out(8 * 32);
    simt::run_grid("exchange", {1}, {32}, 0, [&] { exchange_kernel(out.data()); });
    const std::vector<int> got = out.host();
    uint32_t thirds = 0;
    for (int l = 0; l < 32; l += 3) thirds |= 1u << l;
    for (int l = 0; l < 32; ++l) {
      const int* mine = got.data() + 8 * l;
      uint32_t same = 0;
      for (int j = l % 5; j < 32; j += 5) same |= 1u << j;
      REQUIRE(mine[0] == 25);
      REQUIRE(mine[1] == (l ^ 3));
      REQUIRE(mine[2] == (l < 2 ? l : l - 2));
      REQUIRE(mine[3] == (l % 8 < 4 ? l + 4 : l));
      REQUIRE(uint32_t(mine[4]) == thirds);
      REQUIRE(uint32_t(mine[5]) == same);
      REQUIRE(mine[6] == 31);
      REQUIRE(mine[7] == l * (l - 1) / 2);
    }
  });
}

// Warp 0 produces and warps 1 to 3 consume, in four rounds through two buffers.
__global__ void named_barriers_kernel(int* out) {
  GPU_SHARED(int, buffer, [2][32]);
  constexpr int kFull = 1, kEmpty = 3, kThreads = 128;
  int sum = 0;
  for (int round = 0; round < 4; ++round) {
    const int b = round % 2;
    if (warp() == 0) {
      if (round >= 2) named_barrier_sync(kEmpty + b, kThreads);
      buffer[b][lane()] = round * 100 + lane();
      named_barrier_arrive(kFull + b, kThreads);
    } else {
      named_barrier_sync(kFull + b, kThreads);
      sum += buffer[b][lane()];
      if (round < 2) named_barrier_arrive(kEmpty + b, kThreads);
    }
  }
  out[threadIdx.x] = sum;
}

TEST_CASE("named barriers order a producer and its consumers") {
  under_all([] {
    DeviceArray<int> out(128);
    simt::run_grid("named", {1}, {128}, 0, [&] { named_barriers_kernel(out.data()); });
    const std::vector<int> got = out.host();
    for (int t = 32; t < 128; ++t) REQUIRE(got[size_t(t)] == 600 + 4 * (t % 32));
  });
}

__global__ void early_exit_kernel(int* out, int n) {
  const int t = int(threadIdx.x);
  if (t >= n) return;
  sync_block();
  sync_warp();
  out[t] = t;
}

TEST_CASE("threads that have exited are not waited for") {
  under_all([] {
    DeviceArray<int> out(70);
    simt::run_grid("early_exit", {1}, {128}, 0, [&] { early_exit_kernel(out.data(), 70); });
    for (int t = 0; t < 70; ++t) REQUIRE(out.host()[size_t(t)] == t);
  });
}

__global__ void count_kernel(int64_t* counts, uint32_t* most) {
  atomic_add(&counts[threadIdx.x % 2], int64_t{1});
  if (atomic_load(most) < blockIdx.x * 10) atomic_max(most, uint32_t(blockIdx.x * 10));
}

TEST_CASE("integer atomics in global memory") {
  under_all([] {
    DeviceArray<int64_t> counts(2);
    DeviceArray<uint32_t> most(1);
    simt::device_fill(counts.data(), 0, 16);
    simt::device_fill(most.data(), 0, 4);
    simt::run_grid("count", {7}, {1024}, 0, [&] { count_kernel(counts.data(), most.data()); });
    REQUIRE(counts.host() == std::vector<int64_t>{3584, 3584});
    REQUIRE(most.host()[0] == 60);
  });
}

TEST_CASE("exp2_approx flushes subnormal results") {
  REQUIRE(exp2_approx(-126.0f) > 0.0f);
  REQUIRE(exp2_approx(-126.5f) == 0.0f);
  REQUIRE(exp2_approx(-1.0f / 0.0f) == 0.0f);
}

}  // namespace
}  // namespace assay
