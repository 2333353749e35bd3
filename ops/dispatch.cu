#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/dispatch.h"
#include "ops/gpu/load_batch.h"

namespace assay::gpu {

namespace {

constexpr int kBlock = 256;
constexpr int kScanRows = 32;
constexpr int kOffsetsBlock = 1024;

// Writes row p of partial: the number of assignments per expert in piece p. One block per piece.
// Bound by writing partial.
__global__ __launch_bounds__(kBlock) void dispatch_count_kernel(
    const __grid_constant__ Dispatch a) {
  GPU_DYNAMIC_SHARED(int32_t, count);
  const int64_t p = blockIdx.x, k = a.expert.dim[1];
  const int experts = int(a.partial.dim[1]);
  const int64_t begin = p * kDispatchPieceTokens * k, all = a.expert.size();
  const int64_t end =
      begin + kDispatchPieceTokens * k < all ? begin + kDispatchPieceTokens * k : all;
  for (int e = threadIdx.x; e < experts; e += kBlock) count[e] = 0;
  sync_block();
  in_batches<8>(
      begin + threadIdx.x, end, kBlock, [&](int64_t i) { return a.expert[i]; },
      [&](int64_t, int32_t e) { atomic_add(count + e, 1); });
  sync_block();
  int32_t* out = a.partial.row(p);
  for (int e = threadIdx.x; e < experts; e += kBlock) out[e] = count[e];
}

// Turns counts into starts: an exclusive scan over the pieces of each expert; the total goes to
// offsets[e]. A block owns 32 experts, a row of threads owns a run of adjacent pieces and reads it
// twice, the second time from L2. Bound by latency.
__global__ __launch_bounds__(kWarp* kScanRows) void dispatch_scan_kernel(
    const __grid_constant__ Dispatch a, int64_t pieces) {
  GPU_SHARED(int32_t, totals, [kScanRows][kWarp]);
  const int64_t experts = a.partial.dim[1], e = int64_t{blockIdx.x} * kWarp + threadIdx.x;
  const int x = int(threadIdx.x), y = int(threadIdx.y);
  const int64_t run = ceil_div(pieces, kScanRows);
  const int64_t begin = y * run, end = begin + run < pieces ? begin + run : pieces;

  int32_t total = 0;
  if (e < experts) {
#pragma unroll 8
    for (int64_t p = begin; p < end; ++p) total += a.partial.at(p, e);
  }
  totals[y][x] = total;
  sync_block();
  if (e >= experts) return;
  int32_t start = 0;
  for (int other = 0; other < y; ++other) start += totals[other][x];
  if (y == kScanRows - 1) a.offsets[e] = start + total;
  in_batches<8>(
      begin, end, 1, [&](int64_t p) { return a.partial.at(p, e); },
      [&](int64_t p, int32_t n) {
        a.partial.at(p, e) = start;
        start += n;
      });
}

// Turns totals into offsets. One block, a run of adjacent experts per thread. Bound by latency.
__global__ __launch_bounds__(kOffsetsBlock) void dispatch_offsets_kernel(
    const __grid_constant__ Dispatch a) {
  GPU_SHARED(int32_t, warp_start, [kWarp]);
  const int64_t experts = a.partial.dim[1];
  const int64_t run = ceil_div(experts, kOffsetsBlock);
  const int64_t begin = threadIdx.x * run;
  const int64_t end = begin + run < experts ? begin + run : experts;
  int32_t total = 0;
  for (int64_t e = begin; e < end; ++e) total += a.offsets[e];
  int32_t start = warp_exclusive_sum(total);
  if (lane() == kWarp - 1) warp_start[warp()] = start + total;
  sync_block();
  for (int w = 0; w < warp(); ++w) start += warp_start[w];
  for (int64_t e = begin; e < end; ++e) {
    const int32_t n = a.offsets[e];
    a.offsets[e] = start;
    start += n;
  }
  if (threadIdx.x == kOffsetsBlock - 1) a.offsets[experts] = start;
}

// Assigns the slots, one block per piece. One warp walks the assignments in order, 32 at a time,
// and keeps the next free slot of every expert in shared memory; the other warps only load and
// store. Bound by the latency of that warp: 56 steps of two dependent accesses for K = 7.
__global__ __launch_bounds__(kBlock) void dispatch_slots_kernel(
    const __grid_constant__ Dispatch a) {
  GPU_DYNAMIC_SHARED(int32_t, next);
  const int64_t p = blockIdx.x, k = a.expert.dim[1];
  const int experts = int(a.partial.dim[1]);
  const int64_t begin = p * kDispatchPieceTokens * k, left = a.expert.size() - begin;
  const int n = int(left < kDispatchPieceTokens * k ? left : kDispatchPieceTokens * k);
  int32_t* slot = next + experts;  // holds the expert ids until they are replaced by slots

  const int32_t* start = a.partial.row(p);
  in_batches<8>(
      int(threadIdx.x), n, kBlock, [&](int i) { return a.expert[begin + i]; },
      [&](int i, int32_t e) { slot[i] = e; });
  in_batches<8>(
      int(threadIdx.x), experts, kBlock, [&](int e) { return start[e] + a.offsets[e]; },
      [&](int e, int32_t free) { next[e] = free; });
  sync_block();
  if (warp() == 0) {
    const uint32_t below = (1u << lane()) - 1;
#pragma unroll 2
    for (int first = 0; first < n; first += kWarp) {
      const int i = first + lane();
      const uint32_t e = i < n ? uint32_t(slot[i]) : kAllLanes;
      const uint32_t same = match_any(e);
      const int rank = population_count(same & below);
      if (i < n) slot[i] = next[e] + rank;
      sync_warp();  // all lanes have read next[] before it is advanced
      if (i < n && rank == 0) next[e] += population_count(same);
      sync_warp();
    }
  }
  sync_block();
  for (int i = threadIdx.x; i < n; i += kBlock) {
    a.slot[begin + i] = slot[i];
    a.token[slot[i]] = int32_t((begin + i) / k);
  }
}

}  // namespace

void dispatch(Exec on, const Dispatch& a) {
  const int64_t tokens = a.expert.dim[0], k = a.expert.dim[1], experts = a.partial.dim[1];
  const int64_t pieces = dispatch_pieces(tokens);
  const int64_t bytes = dispatch_shared_bytes(experts, k);
  require_dispatch_room(experts, k, on.gpu->kind.shared_bytes);
  launch(on,
         {.name = "dispatch_count",
          .grid = {unsigned(pieces)},
          .block = {kBlock},
          .shared_bytes = experts * int64_t{sizeof(int32_t)}},
         dispatch_count_kernel, a);
  launch(on,
         {.name = "dispatch_scan",
          .grid = {unsigned(ceil_div(experts, kWarp))},
          .block = {kWarp, kScanRows}},
         dispatch_scan_kernel, a, pieces);
  launch(on, {.name = "dispatch_offsets", .grid = {1}, .block = {kOffsetsBlock}},
         dispatch_offsets_kernel, a);
  launch(on,
         {.name = "dispatch_slots",
          .grid = {unsigned(pieces)},
          .block = {kBlock},
          .shared_bytes = bytes},
         dispatch_slots_kernel, a);
}

}  // namespace assay::gpu
