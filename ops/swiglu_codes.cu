#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/gpu/swiglu.h"
#include "ops/quantise/gpu_fp8_tile.h"
#include "ops/swiglu_codes.h"

namespace assay::gpu {

namespace {

using BlockCoder = Coder<e4m3, ScaleKind::k1x128>;

// 16 adjacent elements of a row of gate, up and dh; 0 outside the matrix.
struct Run {
  CodePairs gate = {}, up = {}, dh = {};
};

GPU_DEVICE float half_of(const CodePairs& x, int i) {
  return i % 2 == 0 ? unpack_low(x[i / 2]) : unpack_high(x[i / 2]);
}

GPU_DEVICE CodePairs h_of(const Run& run) {
  CodePairs h;
  for (int i = 0; i < kCodeRun / 2; ++i) {
    h[i] = pack_bf16(swiglu<bf16>(half_of(run.gate, 2 * i), half_of(run.up, 2 * i)),
                     swiglu<bf16>(half_of(run.gate, 2 * i + 1), half_of(run.up, 2 * i + 1)));
  }
  return h;
}

// Gradients of gate and up.
struct Slopes {
  CodePairs gate, up;
};
GPU_DEVICE Slopes slopes_of(const Run& run) {
  Slopes d;
  for (int i = 0; i < kCodeRun / 2; ++i) {
    float gate[2], up[2];
    for (int e = 0; e < 2; ++e) {
      const float dh = half_of(run.dh, 2 * i + e);
      const SwigluSlopes slope =
          swiglu_slopes<bf16>(half_of(run.gate, 2 * i + e), half_of(run.up, 2 * i + e));
      gate[e] = dh * slope.gate;
      up[e] = dh * slope.up;
    }
    d.gate[i] = pack_bf16(gate[0], gate[1]);
    d.up[i] = pack_bf16(up[0], up[1]);
  }
  return d;
}

// Each thread owns 16 adjacent elements of h, eight lanes per block of 128. Bound by memory:
// gate_up read, one byte per element of h written.
__global__ __launch_bounds__(kCodeThreads) void swiglu_codes_forward_kernel(
    const __grid_constant__ SwigluCodesForward a) {
  const CodePlace p{a.gate_up.dim[0], a.gate_up.dim[1] / 2, int64_t{blockIdx.x} * kCodeTile,
                    int64_t{blockIdx.y} * kCodeTile};
  const auto h = begin_copy(BlockCoder(a.format), a.h, a.not_finite, p);
  for (int i = int(threadIdx.x); i < kCodeTile * kCodeAcross; i += kCodeThreads) {
    const int r = i / kCodeAcross, run = i % kCodeAcross;
    const int64_t line = p.row + r, k = p.column + run * kCodeRun;
    Run x;
    if (line < p.rows) {
      x.gate = load_run(&a.gate_up.at(line, k));
      x.up = load_run(&a.gate_up.at(line, p.columns + k));
    }
    code_row(h, r, run, h_of(x));
  }
}

struct BackwardTiles {
  CodeTile gate, up, h;
};

// Each block owns 128 x 128 elements of dh and writes both copies of dgate and dup, and the column
// copy of h. Bound by memory: gate_up and dh read once, five bytes per element of dh written.
__global__ __launch_bounds__(kCodeThreads) void swiglu_codes_backward_kernel(
    const __grid_constant__ SwigluCodesBackward a) {
  GPU_DYNAMIC_SHARED(BackwardTiles, tiles);
  const int64_t rows = a.dh.dim[0], width = a.dh.dim[1];
  const int64_t row = int64_t{blockIdx.x} * kCodeTile, column = int64_t{blockIdx.y} * kCodeTile;
  const BlockCoder coder(a.format);
  const CodePlace gate{rows, 2 * width, row, column}, up{rows, 2 * width, row, width + column};
  const auto gate_rows = begin_copy(coder, a.row, a.not_finite, gate);
  const auto up_rows = begin_copy(coder, a.row, a.not_finite, up);

  // Row copies; fill the tiles.
  for (int i = int(threadIdx.x); i < kCodeTile * kCodeAcross; i += kCodeThreads) {
    const int r = i / kCodeAcross, run = i % kCodeAcross;
    const int64_t line = row + r, k = column + run * kCodeRun;
    Run x;
    if (line < rows) {
      x.gate = load_run(&a.gate_up.at(line, k));
      x.up = load_run(&a.gate_up.at(line, width + k));
      x.dh = load_run(&a.dh.at(line, k));
    }
    keep_run(tiles->h, r, run, h_of(x));
    const Slopes d = slopes_of(x);
    keep_run(tiles->gate, r, run, d.gate);
    keep_run(tiles->up, r, run, d.up);
    code_row(gate_rows, r, run, d.gate);
    code_row(up_rows, r, run, d.up);
  }
  sync_block();

  // Column copies.
  code_columns(begin_copy(coder, a.column, a.not_finite, gate), tiles->gate);
  code_columns(begin_copy(coder, a.column, a.not_finite, up), tiles->up);
  const CodePlace h{rows, width, row, column};
  code_columns(begin_copy(coder, a.h_column, a.not_finite, h), tiles->h);
}

Launch tiles_of(const char* name, int64_t rows, int64_t width, int64_t shared_bytes) {
  return {.name = name,
          .grid = {unsigned(ceil_div(rows, kCodeTile)), unsigned(ceil_div(width, kCodeTile))},
          .block = {kCodeThreads},
          .shared_bytes = shared_bytes};
}

}  // namespace

void swiglu_codes_forward(Exec on, const SwigluCodesForward& a) {
  const int64_t rows = a.gate_up.dim[0], width = a.gate_up.dim[1] / 2;
  clear_scale_padding(on, a.format, a.h, rows, width);
  launch(on, tiles_of("swiglu_codes_forward", rows, width, 0), swiglu_codes_forward_kernel, a);
}

void swiglu_codes_backward(Exec on, const SwigluCodesBackward& a) {
  const int64_t rows = a.dh.dim[0], width = a.dh.dim[1];
  const int64_t padded = padded_length(a.format.scale, rows);
  clear_scale_padding(on, a.format, a.row, rows, 2 * width);
  clear_scale_padding(on, a.format, a.column, 2 * width, padded);
  clear_scale_padding(on, a.format, a.h_column, width, padded);
  launch(on, tiles_of("swiglu_codes_backward", rows, width, sizeof(BackwardTiles)),
         swiglu_codes_backward_kernel, a);
}

}  // namespace assay::gpu
