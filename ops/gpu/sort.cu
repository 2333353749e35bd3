#include "base/check.h"
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/sort.h"

namespace assay::gpu {

namespace {

constexpr int kDigitBits = 8;
constexpr int kDigits = 1 << kDigitBits;
constexpr int kThreads = 256;
constexpr int kWarps = kThreads / kWarp;
constexpr int kRounds = 8;                    // rounds of 32 keys per warp
constexpr int kPerWarp = kRounds * kWarp;     // adjacent keys per warp
constexpr int kPerBlock = kWarps * kPerWarp;  // 2048
static_assert(kThreads == kDigits, "a thread counts, and then places, one digit");

// One pass of the radix sort: (key, position) from `in` to `out`, ordered by one digit.
struct Pass {
  View<int32_t, 1> out_key, out_position;  // out (n)
  View<int32_t, 2> count;  // tmp (blocks, digits)   written by sort_count, read by sort_place
  // in  (n)   in_position is empty in the first pass: 0, 1, 2, ...
  View<const int32_t, 1> in_key, in_position;
  int32_t shift;
};

GPU_DEVICE int digit_of(int32_t key, int shift) {
  return (key >> shift) & (kDigits - 1);
}

// Each block counts the digits of its 2048 keys. The counts are integers, so the order of the
// shared memory atomics does not matter.
__global__ __launch_bounds__(kThreads) void sort_count_kernel(const __grid_constant__ Pass a) {
  GPU_SHARED(int32_t, count, [kDigits]);
  const int thread = int(threadIdx.x);
  count[thread] = 0;
  sync_block();
  const int64_t begin = int64_t{blockIdx.x} * kPerBlock;
  for (int k = 0; k < kPerBlock / kThreads; ++k) {
    const int64_t i = begin + k * kThreads + thread;
    if (i < a.in_key.dim[0]) atomic_add(&count[digit_of(a.in_key[i], a.shift)], int32_t{1});
  }
  sync_block();
  a.count.at(blockIdx.x, thread) = count[thread];
}

// Each block places its 2048 keys. First, thread d finds where digit d starts (all lower digits,
// then this digit in earlier blocks) from the whole table of counts: 1 KB per block from L2. Then
// each warp ranks its own 256 adjacent keys, 32 at a time: among equal digits by lane, after those
// of earlier rounds and earlier warps. Bound by latency, not memory: 131072 keys are one wave of
// blocks.
__global__ __launch_bounds__(kThreads) void sort_place_kernel(const __grid_constant__ Pass a) {
  GPU_SHARED(int32_t, start, [kDigits]);
  GPU_SHARED(int32_t, warp_count, [kWarps][kDigits]);
  GPU_SHARED(int32_t, warp_total, [kWarps]);
  const int thread = int(threadIdx.x), block = int(blockIdx.x);
  const int my_lane = lane(), my_warp = warp();
  const int64_t n = a.in_key.dim[0];
  const int64_t begin = int64_t{block} * kPerBlock + my_warp * kPerWarp;

  // Starts of the digits.
  int32_t total = 0, earlier = 0;
  for (int b = 0; b < int(gridDim.x); ++b) {
    const int32_t count = a.count.at(b, thread);
    total += count;
    if (b < block) earlier += count;
  }
  const int32_t below_in_warp = warp_exclusive_sum(total);
  if (my_lane == kWarp - 1) warp_total[my_warp] = below_in_warp + total;
  for (int w = 0; w < kWarps; ++w) warp_count[w][thread] = 0;
  sync_block();
  int32_t first = below_in_warp + earlier;
  for (int w = 0; w < my_warp; ++w) first += warp_total[w];
  start[thread] = first;

  // Ranks within the warp.
  int32_t key[kRounds], rank[kRounds];
  const uint32_t lower_lanes = (1u << my_lane) - 1;
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = begin + r * kWarp + my_lane;
    const bool valid = i < n;
    key[r] = valid ? a.in_key[i] : 0;
    const int digit = digit_of(key[r], a.shift);
    // Positions past the end share a value that is no digit.
    const uint32_t equal = match_any(valid ? uint32_t(digit) : uint32_t(kDigits));
    rank[r] = population_count(equal & lower_lanes);
    if (valid) rank[r] += warp_count[my_warp][digit];
    sync_warp();
    if (valid && my_lane == lowest_bit(equal))
      warp_count[my_warp][digit] += population_count(equal);
    sync_warp();
  }
  sync_block();

  // Thread d turns the warps' counts of digit d into the positions of each warp's first such key.
  int32_t next = start[thread];
  for (int w = 0; w < kWarps; ++w) {
    const int32_t count = warp_count[w][thread];
    warp_count[w][thread] = next;
    next += count;
  }
  sync_block();

  // Store.
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = begin + r * kWarp + my_lane;
    if (i >= n) continue;
    const int32_t at = warp_count[my_warp][digit_of(key[r], a.shift)] + rank[r];
    a.out_key[at] = key[r];
    a.out_position[at] = a.in_position.empty() ? int32_t(i) : a.in_position[i];
  }
}

int64_t blocks_of(int64_t n) {
  return ceil_div(n, kPerBlock);
}

int64_t rounded(int64_t bytes) {
  return round_up(bytes, 16);
}

}  // namespace

int64_t sort_positions_scratch_bytes(int64_t n) {
  return rounded(blocks_of(n) * kDigits * 4) + 2 * rounded(n * 4);
}

void sort_positions(Exec on, const SortPositions& a) {
  const int64_t n = a.keys.dim[0], blocks = blocks_of(n);
  if (n == 0) return;
  CHECK(n < INT32_MAX && a.limit <= INT32_MAX &&
            a.scratch.size() >= sort_positions_scratch_bytes(n) && a.key.dim[0] == n &&
            a.position.dim[0] == n,
        "sort_positions: %ld keys below %ld, key (%ld), position (%ld), scratch of %ld bytes",
        long(n), long(a.limit), long(a.key.dim[0]), long(a.position.dim[0]),
        long(a.scratch.size()));
  auto* const memory = a.scratch.data;
  const View<int32_t, 2> count{reinterpret_cast<int32_t*>(memory), {blocks, kDigits}};
  std::byte* const rest = memory + rounded(int64_t(count.bytes()));
  const View<int32_t, 1> other_key{reinterpret_cast<int32_t*>(rest), {n}};
  const View<int32_t, 1> other_position{reinterpret_cast<int32_t*>(rest + rounded(n * 4)), {n}};
  int passes = 1;
  while (passes < 4 && (a.limit - 1) >> (passes * kDigitBits) > 0) ++passes;

  Pass pass{.out_key = {},
            .out_position = {},
            .count = count,
            .in_key = a.keys,
            .in_position = {},
            .shift = 0};
  for (int p = 0; p < passes; ++p) {
    const bool to_result = (passes - 1 - p) % 2 == 0;
    pass.out_key = to_result ? a.key : other_key;
    pass.out_position = to_result ? a.position : other_position;
    pass.shift = p * kDigitBits;
    launch(on, {.name = "sort_count", .grid = {unsigned(blocks)}, .block = {kThreads}},
           sort_count_kernel, pass);
    launch(on, {.name = "sort_place", .grid = {unsigned(blocks)}, .block = {kThreads}},
           sort_place_kernel, pass);
    pass.in_key = pass.out_key;
    pass.in_position = pass.out_position;
  }
}

}  // namespace assay::gpu
