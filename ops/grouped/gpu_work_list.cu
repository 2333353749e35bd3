#include "base/check.h"
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/grouped/gpu_work_list.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 1024;
constexpr int kOrderThreads = 256;
constexpr int kCutExperts = 2 * kWarp;           // experts of a block of cut_rows
constexpr int kOrderExperts = kThreads / kWarp;  // experts of a block of order_experts

struct CutRows {
  GroupedParts to;
  View<const int32_t, 1> offsets;  // in (E+1)   empty: one expert has all rows
  int rows;
  int tile_rows;

  GPU_DEVICE int experts() const { return offsets.empty() ? 1 : int(offsets.dim[0]) - 1; }
  // First row of an expert; e may be experts().
  GPU_DEVICE int begin(int e) const { return offsets.empty() ? e * rows : offsets[e]; }
  GPU_DEVICE int parts(int e) const { return ceil_div(begin(e + 1) - begin(e), tile_rows); }
};

// Each block owns 64 experts. It counts the parts before them, each thread over every 1024th
// expert, then the parts of each of its own, then writes these, one per thread, which finds its
// expert by bisection: one expert with all rows takes no longer than many. Bound by latency.
__global__ __launch_bounds__(kThreads) void cut_rows_kernel(const __grid_constant__ CutRows a) {
  GPU_SHARED(int, scratch, [kWarp]);
  GPU_SHARED(int, first, [kCutExperts + 1]);  // part, counted from the block's first
  const int experts = a.experts(), begin_expert = int(blockIdx.x) * kCutExperts;
  const int thread = int(threadIdx.x);
  int before = 0;
  for (int e = thread; e < begin_expert; e += kThreads) before += a.parts(e);
  before = block_sum(before, scratch);
  if (warp() == 0) {
    const int e = begin_expert + 2 * lane();
    const int even = e < experts ? a.parts(e) : 0, odd = e + 1 < experts ? a.parts(e + 1) : 0;
    const int start = warp_exclusive_sum(even + odd);
    first[2 * lane()] = start;
    first[2 * lane() + 1] = start + even;
    if (lane() == kWarp - 1) first[kCutExperts] = start + even + odd;
  }
  sync_block();
  const int mine = first[kCutExperts];
  if (thread == 0 && blockIdx.x == gridDim.x - 1) *a.to.count = before + mine;

  for (int part = thread; part < mine; part += kThreads) {
    // The last expert with first <= part: among those with the same first, the one with rows.
    int own = 0;
    for (int step = kCutExperts / 2; step > 0; step /= 2) {
      if (first[own + step] <= part) own += step;
    }
    const int e = begin_expert + own;
    const int begin = a.begin(e) + (part - first[own]) * a.tile_rows;
    const int left = a.begin(e + 1) - begin;
    a.to.parts[before + part] = {e, begin, left < a.tile_rows ? left : a.tile_rows, 0};
  }
}

// Predecessor of cut_rows_kernel.
//
// One block. First the experts, 1024 at a time: the number of parts before each. Then the parts,
// one per thread: finds its expert by bisection, so that one expert with all rows takes no longer
// than many. Bound by latency, a few microseconds.
__global__ __launch_bounds__(kThreads) void cut_rows_one_block_kernel(
    const __grid_constant__ CutRows a) {
  GPU_SHARED(int, warp_total, [kWarp]);
  const int experts = a.experts();
  int before = 0;

  // First part of every expert.
  for (int base = 0; base < experts; base += kThreads) {
    const int e = base + int(threadIdx.x);
    const int rows = e < experts ? a.begin(e + 1) - a.begin(e) : 0;
    const int parts = ceil_div(rows, a.tile_rows);
    const int in_warp = warp_exclusive_sum(parts);
    if (lane() == kWarp - 1) warp_total[warp()] = in_warp + parts;
    sync_block();
    const int total = warp_total[lane()];
    const int lower_warps = shuffle(warp_exclusive_sum(total), warp());
    if (e < experts) a.to.first[e] = before + lower_warps + in_warp;
    before += warp_sum(total);
    sync_block();  // warp_total may be reused, `first` is visible to the block
  }
  if (threadIdx.x == 0) *a.to.count = before;

  // Parts.
  for (int part = int(threadIdx.x); part < before; part += kThreads) {
    // The last expert with first[e] <= part: among those with the same first, the one with rows.
    int e = 0;
    for (int above = experts; above - e > 1;) {
      const int middle = (e + above) / 2;
      if (a.to.first[middle] <= part) {
        e = middle;
      } else {
        above = middle;
      }
    }
    const int begin = a.begin(e) + (part - a.to.first[e]) * a.tile_rows;
    const int left = a.begin(e + 1) - begin;
    a.to.parts[part] = {e, begin, left < a.tile_rows ? left : a.tile_rows, 0};
  }
}

struct OrderExperts {
  GroupedParts to;
  View<const int32_t, 1> offsets;  // in (E+1)
  int piece_shift;                 // a piece has at most 2^piece_shift rows
};

struct Pieces {
  int count, rows;  // rows: of each piece but the last
};
GPU_DEVICE Pieces pieces_of(const OrderExperts& a, int e) {
  const int rows = a.offsets[e + 1] - a.offsets[e];
  const int count = rows > 0 ? ((rows - 1) >> a.piece_shift) + 1 : 0;
  return {count, count > 1 ? ceil_div(rows, count) : rows};
}

// The list's entries of an expert, by one warp. before: pieces of experts that come before it;
// slots: pieces of cut experts with lower ids.
GPU_DEVICE void write_pieces(const OrderExperts& a, int e, Pieces mine, int before, int slots) {
  for (int i = lane(); i < mine.count; i += kWarp) {
    const int begin = a.offsets[e] + i * mine.rows, left = a.offsets[e + 1] - begin;
    a.to.parts[before + i] = {e, begin, left < mine.rows ? left : mine.rows,
                              mine.count > 1 ? 1 + slots + i : 0};
  }
}

// Each warp owns an expert and counts the pieces before it, each lane over every 32nd of the other
// experts, of which the block has 1024 in shared memory: E^2 comparisons of three instructions, 16
// million at 4096 experts. Experts that are cut, usually none, count the slots before them again.
__global__ __launch_bounds__(kThreads) void order_experts_kernel(
    const __grid_constant__ OrderExperts a) {
  GPU_SHARED(int, scratch, [kWarp]);
  GPU_SHARED(int, rows, [kThreads]);
  GPU_SHARED(int, count, [kThreads]);
  const int experts = int(a.offsets.dim[0]) - 1;
  const int e = int(blockIdx.x) * kOrderExperts + warp(), thread = int(threadIdx.x);
  const Pieces mine = e < experts ? pieces_of(a, e) : Pieces{0, 0};
  int before = 0, slots = 0, all = 0;
  for (int base = 0; base < experts; base += kThreads) {
    const Pieces loaded = base + thread < experts ? pieces_of(a, base + thread) : Pieces{0, 0};
    rows[thread] = loaded.rows;
    count[thread] = loaded.count;
    all += loaded.count;
    sync_block();
    const int others = experts - base < kThreads ? experts - base : kThreads;
#pragma unroll 8
    for (int i = lane(); i < others; i += kWarp) {
      // Of experts with as many rows, those with lower ids.
      if (rows[i] >= mine.rows + int(base + i >= e)) before += count[i];
    }
    if (mine.count > 1) {
      for (int i = lane(); i < others && base + i < e; i += kWarp) {
        if (count[i] > 1) slots += count[i];
      }
    }
    sync_block();  // rows and count may be overwritten
  }
  if (blockIdx.x == 0) {
    all = block_sum(all, scratch);
    if (thread == 0) *a.to.count = all;
  }
  before = warp_sum(before);
  slots = warp_sum(slots);
  if (e < experts) write_pieces(a, e, mine, before, slots);
}

// Predecessor of order_experts_kernel.
//
// Each warp owns an expert and counts the pieces before it, each lane over every 32nd of the other
// experts: E^2 comparisons, 16 million at 4096 experts. Bound by latency, a few microseconds.
__global__ __launch_bounds__(kOrderThreads) void order_experts_from_memory_kernel(
    const __grid_constant__ OrderExperts a) {
  const int experts = int(a.offsets.dim[0]) - 1;
  const int e = int(blockIdx.x) * (kOrderThreads / kWarp) + warp();
  if (e >= experts) return;
  const Pieces mine = pieces_of(a, e);
  int before = 0, slots = 0, all = 0;
  for (int base = 0; base < experts; base += kWarp) {
    const int other = base + lane();
    const Pieces p = other < experts ? pieces_of(a, other) : Pieces{0, 0};
    if (p.rows > mine.rows || (p.rows == mine.rows && other < e)) before += p.count;
    if (other < e && p.count > 1) slots += p.count;
    all += p.count;
  }
  before = warp_sum(before);
  slots = warp_sum(slots);
  all = warp_sum(all);
  write_pieces(a, e, mine, before, slots);
  if (e == 0 && lane() == 0) *a.to.count = all;
}

struct AddPieces {
  GroupedParts from;
  float* dweight;  // acc (E, matrix)
  int64_t matrix;  // out * in, a multiple of 8
  int adds;        // 0: dweight is not read
};

// Each thread owns 4 adjacent elements of every matrix. The list is sorted by rows, and a piece
// that is not the last of its expert has at least half of kGroupedPieceRows: the search stops below
// that. Bound by memory: 4 bytes per piece and 8 per expert for each element; usually there is
// nothing to do.
__global__ __launch_bounds__(kOrderThreads) void add_pieces_kernel(
    const __grid_constant__ AddPieces a) {
  const int parts = *a.from.count;
  const int64_t stride = int64_t{gridDim.x} * kOrderThreads * 4;
  const int64_t begin = (int64_t{blockIdx.x} * kOrderThreads + threadIdx.x) * 4;
  for (int p = 0, pieces = 1; p < parts; p += pieces, pieces = 1) {
    const GroupedPart first = a.from.parts[p];
    if (first.rows < kGroupedPieceRows / 2) return;
    if (first.slot == 0) continue;
    while (p + pieces < parts && a.from.parts[p + pieces].expert == first.expert) ++pieces;
    float* const to = a.dweight + int64_t{first.expert} * a.matrix;
    const float* const sums = a.from.partial + int64_t{first.slot - 1} * a.matrix;
    for (int64_t i = begin; i < a.matrix; i += stride) {
      Vec<float, 4> v = {};
      if (a.adds) v = load_vec<4>(to + i);
      for (int piece = 0; piece < pieces; ++piece) {
        const auto sum = load_vec<4>(sums + piece * a.matrix + i);
        for (int j = 0; j < 4; ++j) v[j] += sum[j];
      }
      store_vec(to + i, v);
    }
  }
}

struct ZeroIdle {
  View<const int32_t, 1> offsets;  // in  (E+1)
  float* dweight;                  // out (E, matrix)
  int64_t matrix;                  // a multiple of 8
};

// Some blocks for each expert, which is theirs in x; most have rows, and the blocks end. Bound by
// memory where experts have none.
__global__ __launch_bounds__(kOrderThreads) void zero_idle_kernel(
    const __grid_constant__ ZeroIdle a) {
  const int e = int(blockIdx.x);
  if (a.offsets[e] != a.offsets[e + 1]) return;
  float* const to = a.dweight + int64_t{e} * a.matrix;
  const int64_t stride = int64_t{gridDim.y} * kOrderThreads * 4;
  const int64_t begin = (int64_t{blockIdx.y} * kOrderThreads + threadIdx.x) * 4;
  for (int64_t i = begin; i < a.matrix; i += stride) store_vec(to + i, Vec<float, 4>{});
}

}  // namespace

GroupedParts grouped_parts(Exec on, const char* op, int64_t assignments, int64_t experts,
                           int64_t out, int64_t in, int64_t most_rows) {
  const int64_t need = grouped_parts_bytes(assignments, experts, out, in, most_rows);
  CHECK(on.workspace.dim[0] >= need, "%s: workspace has %ld bytes, needs %ld", op,
        long(on.workspace.dim[0]), long(need));
  std::byte* const at = on.workspace.data;
  return {reinterpret_cast<int32_t*>(at), reinterpret_cast<int32_t*>(at + 64),
          reinterpret_cast<GroupedPart*>(at + 64 + grouped_first_bytes(experts)),
          reinterpret_cast<float*>(at + grouped_list_bytes(assignments, experts))};
}

void cut_rows(Exec on, const GroupedParts& to, View<const int32_t, 1> offsets, int64_t rows,
              int tile_rows) {
  const bool old = on.gpu->predecessors.has(Predecessor::kWorkLists);
  const int64_t experts = offsets.empty() ? 1 : offsets.dim[0] - 1;
  launch(on,
         {.name = "grouped_cut_rows",
          .grid = {old ? 1 : uint32_t(ceil_div(experts, kCutExperts))},
          .block = {kThreads}},
         old ? cut_rows_one_block_kernel : cut_rows_kernel,
         CutRows{to, offsets, int(rows), tile_rows});
}

void order_experts(Exec on, const GroupedParts& to, View<const int32_t, 1> offsets,
                   GroupedCut cut) {
  const int64_t experts = offsets.dim[0] - 1;
  const bool old = on.gpu->predecessors.has(Predecessor::kWorkLists);
  const int threads = old ? kOrderThreads : kThreads;
  launch(on,
         {.name = "grouped_order_experts",
          .grid = {uint32_t(ceil_div(experts * kWarp, threads))},
          .block = {uint32_t(threads)}},
         old ? order_experts_from_memory_kernel : order_experts_kernel,
         OrderExperts{to, offsets, cut == GroupedCut::kPieces ? kGroupedPieceShift : 31});
}

void add_pieces(Exec on, const GroupedParts& from, View<float, 3> dweight, GradientSum sum) {
  launch(on,
         {.name = "grouped_add_pieces",
          .grid = {uint32_t(on.gpu->multiprocessors * 4)},
          .block = {kOrderThreads}},
         add_pieces_kernel,
         AddPieces{from, dweight.data, dweight.dim[1] * dweight.dim[2], sum == GradientSum::kAdd});
}

void zero_idle_experts(Exec on, View<const int32_t, 1> offsets, View<float, 3> dweight) {
  constexpr uint32_t kBlocks = 4;  // of an expert
  launch(on,
         {.name = "grouped_zero_idle",
          .grid = {uint32_t(dweight.dim[0]), kBlocks},
          .block = {kOrderThreads}},
         zero_idle_kernel, ZeroIdle{offsets, dweight.data, dweight.dim[1] * dweight.dim[2]});
}

}  // namespace assay::gpu
