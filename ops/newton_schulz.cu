#include <cmath>

#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/newton_schulz.h"

// The products are the grouped tensor-core kernels (ops/grouped_linear.cu): one launch for all
// matrices of a stack.

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;

// A block owns one piece of one matrix, so that its sum has a fixed order; block 0 also writes the
// offsets. Bound by memory: 2 bytes per element.
__global__ __launch_bounds__(kThreads) void newton_schulz_norm_kernel(
    const __grid_constant__ NewtonSchulzNorm a) {
  GPU_SHARED(double, scratch, [kWarp]);
  const int64_t n = a.x.dim[0], rows = a.x.dim[1], cols = a.x.dim[2], size = rows * cols;
  const int64_t pieces = a.partial.dim[1];
  const int64_t e = blockIdx.x / pieces, piece = blockIdx.x % pieces;
  const int64_t begin = piece * kNewtonSchulzPiece;
  const int64_t end = begin + kNewtonSchulzPiece < size ? begin + kNewtonSchulzPiece : size;
  double sum = 0;
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    const double x = float(a.x[e * size + i]);
    sum += x * x;
  }
  sum = block_sum(sum, scratch);
  if (threadIdx.x == 0) a.partial.at(e, piece) = sum;
  if (blockIdx.x != 0) return;
  const int64_t gram = rows < cols ? rows : cols;
  for (int64_t i = threadIdx.x; i <= n; i += kThreads) {
    a.offsets.at(0, i) = int32_t(i * rows);
    a.offsets.at(1, i) = int32_t(i * gram);
  }
}

// A block owns one piece of one matrix; every thread adds the matrix's partial sums in order (a
// hundred at most for matrices of a million elements, from L1). Bound by memory: 4 bytes per
// element.
__global__ __launch_bounds__(kThreads) void newton_schulz_scale_kernel(
    const __grid_constant__ NewtonSchulzScale a) {
  const int64_t size = a.x.dim[1] * a.x.dim[2], pieces = a.partial.dim[1];
  const int64_t e = blockIdx.x / pieces, begin = blockIdx.x % pieces * kNewtonSchulzPiece;
  const int64_t end = begin + kNewtonSchulzPiece < size ? begin + kNewtonSchulzPiece : size;
  double sum = 0;
  for (int64_t p = 0; p < pieces; ++p) sum += a.partial.at(e, p);
  const double root = sqrt(sum);
  // A NaN stays one, as with std::max on the CPU.
  const float norm = float(root < kNewtonSchulzEps ? kNewtonSchulzEps : root);
  for (int64_t i = begin + threadIdx.x; i < end; i += kThreads) {
    bf16& x = a.x[e * size + i];
    round_to(x, float(x) / norm);
  }
}

// Two elements per thread would save little: bound by memory, 6 bytes per element, beside products
// that take longer.
__global__ __launch_bounds__(kThreads) void newton_schulz_combine_kernel(
    const __grid_constant__ NewtonSchulzCombine a) {
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.x.dim[0]) return;
  round_to(a.x[i], fmaf(a.a, float(a.x[i]), a.b * float(a.y[i])));
}

}  // namespace

void newton_schulz_norm(Exec on, const NewtonSchulzNorm& a) {
  launch(on,
         {.name = "newton_schulz_norm", .grid = {unsigned(a.partial.size())}, .block = {kThreads}},
         newton_schulz_norm_kernel, a);
}
void newton_schulz_scale(Exec on, const NewtonSchulzScale& a) {
  launch(on,
         {.name = "newton_schulz_scale", .grid = {unsigned(a.partial.size())}, .block = {kThreads}},
         newton_schulz_scale_kernel, a);
}
void newton_schulz_combine(Exec on, const NewtonSchulzCombine& a) {
  launch(on,
         {.name = "newton_schulz_combine",
          .grid = {unsigned(ceil_div(a.x.dim[0], kThreads))},
          .block = {kThreads}},
         newton_schulz_combine_kernel, a);
}

}  // namespace assay::gpu
