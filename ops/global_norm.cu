#include <cmath>

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/global_norm.h"
#include "ops/gpu/elements.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kFour = 4;
constexpr int kFinalThreads = 1024;
// Tensors per launch: their table is a kernel parameter, which is limited to 4 KB.
constexpr int kTensors = 128;

// The list of gradients is on the host; each launch carries a part of it.
struct Batch {
  View<double, 2> partial;              // out (pieces of the batch, 2)
  View<const float, 1> grad[kTensors];  // in
  // Pieces before tensor i of the batch; the last entry is the total.
  int32_t first_piece[kTensors + 1] = {};
  int32_t tensors = 0;
};
static_assert(sizeof(Batch) <= 4096);

GPU_DEVICE bool non_finite(float x) {
  return (bits_of(x) & 0x7F800000u) == 0x7F800000u;
}

// Each block owns a piece: 16384 adjacent elements of one tensor, each read once (4 bytes, the
// bound). A thread adds squares in double in a fixed order: one conversion and one multiply-add per
// element, a quarter of what the double units do in that time.
__global__ __launch_bounds__(kThreads) void square_sums_kernel(const __grid_constant__ Batch a) {
  GPU_SHARED(double, scratch, [kWarp]);
  const int piece = int(blockIdx.x);
  // Finds the tensor: first_piece[low] <= piece < first_piece[high].
  int low = 0, high = a.tensors;
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    if (a.first_piece[middle] <= piece) {
      low = middle;
    } else {
      high = middle;
    }
  }
  const int64_t begin = int64_t{piece - a.first_piece[low]} * kNormPiece;
  const int64_t rest = a.grad[low].dim[0] - begin;
  const int n = int(rest < kNormPiece ? rest : kNormPiece);
  const float* g = a.grad[low].data + begin;

  double squares = 0;
  int bad = 0;
  const int whole = reinterpret_cast<uintptr_t>(g) % 16 == 0 ? n / kFour * kFour : 0;
#pragma unroll 4
  for (int i = int(threadIdx.x) * kFour; i < whole; i += kThreads * kFour) {
    float x[kFour];
    load_floats(x, g + i);
    for (int e = 0; e < kFour; ++e) {
      squares += double(x[e]) * double(x[e]);
      bad += non_finite(x[e]);
    }
  }
  for (int i = whole + int(threadIdx.x); i < n; i += kThreads) {
    squares += double(g[i]) * double(g[i]);
    bad += non_finite(g[i]);
  }
  squares = block_sum(squares, scratch);
  const double all_bad = block_sum(double(bad), scratch);
  if (threadIdx.x == 0) {
    a.partial.at(piece, 0) = squares;
    a.partial.at(piece, 1) = all_bad;
  }
}

// One block: each thread adds every 1024th piece, then the block reduces, always in the same order.
// 16 bytes per piece: the time is launch latency for any model size.
__global__ __launch_bounds__(kFinalThreads) void norm_kernel(
    const __grid_constant__ NormOfSquares a) {
  GPU_SHARED(double, scratch, [kWarp]);
  double squares = 0, bad = 0;
  for (int64_t p = threadIdx.x; p < a.partial.dim[0]; p += kFinalThreads) {
    squares += a.partial.at(p, 0);
    bad += a.partial.at(p, 1);
  }
  squares = block_sum(squares, scratch);
  bad = block_sum(bad, scratch);
  if (threadIdx.x > 0) return;
  const double norm = sqrt(squares);
  a.norm[0] = float(norm);
  a.clip[0] = a.max_norm > 0 && norm > a.max_norm ? float(a.max_norm / norm) : 1.0f;
  a.non_finite[0] = int64_t(bad);
}

}  // namespace

void square_sums(Exec on, const SquareSums& a) {
  int64_t pieces = 0;
  for (int64_t first = 0; first < a.grads.dim[0]; first += kTensors) {
    Batch batch;
    for (int64_t t = first; t < a.grads.dim[0] && t < first + kTensors; ++t) {
      const int64_t more = ceil_div(a.grads[t].dim[0], kNormPiece);
      batch.grad[batch.tensors] = a.grads[t];
      batch.first_piece[batch.tensors + 1] = batch.first_piece[batch.tensors] + int32_t(more);
      batch.tensors += 1;
    }
    const int32_t count = batch.first_piece[batch.tensors];
    if (count == 0) continue;
    batch.partial = a.partial.rows(pieces, count);
    launch(on, {.name = "global_norm_squares", .grid = {unsigned(count)}, .block = {kThreads}},
           square_sums_kernel, batch);
    pieces += count;
  }
}

void norm_of_squares(Exec on, const NormOfSquares& a) {
  launch(on, {.name = "global_norm", .grid = {1}, .block = {kFinalThreads}}, norm_kernel, a);
}

}  // namespace assay::gpu
