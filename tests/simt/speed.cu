// The overhead of the SIMT emulator: build/simt_speed prints nanoseconds per thread and wait, the
// best of five runs.
#include <algorithm>
#include <chrono>
#include <cstdio>

#include "cuda/gpu.h"
#include "tests/simt/run.h"

namespace assay {
namespace {

using namespace gpu;

constexpr int kRounds = 200;

__global__ void plain_kernel(float* out) {
  out[blockIdx.x * blockDim.x + threadIdx.x] = 1.0f;
}
__global__ void block_barriers_kernel() {
  for (int i = 0; i < kRounds; ++i) sync_block();
}
__global__ void shuffles_kernel(float* out) {
  float x = float(threadIdx.x);
  for (int i = 0; i < kRounds; ++i) x += shuffle_xor(x, 1 << (i % 5));
  out[threadIdx.x] = x;
}
__global__ void ballots_kernel(float* out) {
  uint32_t x = 0;
  for (int i = 0; i < kRounds; ++i) x ^= ballot(int(threadIdx.x) % (i + 2));
  out[threadIdx.x] = float(x);
}
__global__ void atomics_kernel(int32_t* out) {
  for (int i = 0; i < kRounds; ++i) atomic_add(out, 1);
}

template <typename F>
void measure(const char* name, unsigned blocks, unsigned threads, int per_thread, F kernel) {
  using Clock = std::chrono::steady_clock;
  double best = 1e30;
  for (int run = 0; run < 5; ++run) {
    const auto begin = Clock::now();
    simt::run_grid(name, {blocks}, {threads}, 0, kernel);
    const std::chrono::duration<double, std::nano> took = Clock::now() - begin;
    best = std::min(best, took.count() / (double(blocks) * threads * per_thread));
  }
  std::printf("%-16s %4u threads a block   %6.1f ns\n", name, threads, best);
}

void measure_all() {
  test::DeviceArray<float> out(1 << 20);
  test::DeviceArray<int32_t> count(1);
  for (unsigned threads : {32u, 256u, 1024u}) {
    const unsigned blocks = 32768 / threads;
    measure("thread", blocks * 8, threads, 1, [&] { plain_kernel(out.data()); });
    measure("sync_block", blocks, threads, kRounds, block_barriers_kernel);
    measure("shuffle_xor", blocks, threads, kRounds, [&] { shuffles_kernel(out.data()); });
    measure("ballot", blocks, threads, kRounds, [&] { ballots_kernel(out.data()); });
    measure("atomic_add", blocks, threads, kRounds, [&] { atomics_kernel(count.data()); });
  }
}

}  // namespace
}  // namespace assay

int main() {
  for (const char* name : {"fwd", "rev", "rnd:1"}) {
    std::printf("schedule %s\n", name);
    assay::simt::set_schedule(assay::simt::parse_schedule(name));
    assay::measure_all();
  }
}
