#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu_codes.h"
#include "ops/gpu_elements.h"
#include "ops/gpu_ops.h"
#include "ops/gpu_swiglu.h"
#include "ops/swiglu_codes.h"

namespace assay::gpu {

namespace {

using LineCoder = Coder<e4m3, ScaleKind::k1x128>;

// gate_up's 16 neighbours of a row, and dh's. Outside the matrix 0.
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

// dgate and dup.
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

// A thread owns 16 neighbours of h, eight lanes a block of 128. Bound by memory: gate_up read, a byte an element of h written.
__global__ __launch_bounds__(kCodeThreads) void swiglu_codes_forward_kernel(
    const __grid_constant__ SwigluCodesForward a) {
  const CodePlace p{a.gate_up.dim[0], a.gate_up.dim[1] / 2, int64_t{blockIdx.x} * kCodeTile,
                    int64_t{blockIdx.y} * kCodeTile};
  const LineCoder coder(a.format);
  for (int i = int(threadIdx.x); i < kCodeTile * kCodeAcross; i += kCodeThreads) {
    const int r = i / kCodeAcross, run = i % kCodeAcross;
    const int64_t line = p.row + r, k = p.column + run * kCodeRun;
    Run x;
    if (line < p.rows) {
      x.gate = load_run(&a.gate_up.at(line, k));
      x.up = load_run(&a.gate_up.at(line, p.columns + k));
    }
    code_row(coder, a.h, a.not_finite, 0, p, r, run, h_of(x));
  }
}

struct BackwardTiles {
  CodeTile gate, up, h;
};

// A block owns 128 x 128 of dh and makes both copies of dgate and dup there, and h's along columns. Bound by memory: gate_up and dh
// read once, five bytes an element of dh written.
__global__ __launch_bounds__(kCodeThreads) void swiglu_codes_backward_kernel(
    const __grid_constant__ SwigluCodesBackward a) {
  GPU_DYNAMIC_SHARED(BackwardTiles, tiles);
  const int64_t rows = a.dh.dim[0], width = a.dh.dim[1];
  const CodePlace h{rows, width, int64_t{blockIdx.x} * kCodeTile, int64_t{blockIdx.y} * kCodeTile};
  const CodePlace gate{rows, 2 * width, h.row, h.column},
      up{rows, 2 * width, h.row, width + h.column};
  const LineCoder coder(a.format);
  for (int i = int(threadIdx.x); i < kCodeTile * kCodeAcross; i += kCodeThreads) {
    const int r = i / kCodeAcross, run = i % kCodeAcross;
    const int64_t line = h.row + r, k = h.column + run * kCodeRun;
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
    code_row(coder, a.row, a.not_finite, 0, gate, r, run, d.gate);
    code_row(coder, a.row, a.not_finite, 0, up, r, run, d.up);
  }
  sync_block();
  code_columns(coder, a.column, a.not_finite, 0, gate, tiles->gate);
  code_columns(coder, a.column, a.not_finite, 0, up, tiles->up);
  code_columns(coder, a.h_column, a.not_finite, 0, h, tiles->h);
}

Launch tiles_of(const char* name, int64_t rows, int64_t width, int64_t shared_bytes) {
  return {
      .name = name,
      .grid = {unsigned(ceil_div(rows,   kCodeTile)), unsigned(ceil_div(width, kCodeTile))},
      .block = {kCodeThreads},
      .shared_bytes = shared_bytes
  };
}

// Scales that belong to no line of the hardware's layout are 0.
void clear_scales(Exec on, const QuantFormat& format, const QuantisedCopy& copy) {
  if (format.layout == ScaleLayout::kHardware) zero(on, copy.scales);
}

}  // namespace

void swiglu_codes_forward(Exec on, const SwigluCodesForward& a) {
  clear_scales(on, a.format, a.h);
  launch(on, tiles_of("swiglu_codes_forward", a.gate_up.dim[0], a.gate_up.dim[1] / 2, 0),
         swiglu_codes_forward_kernel, a);
}

void swiglu_codes_backward(Exec on, const SwigluCodesBackward& a) {
  const QuantisedCopy copies[] = {a.row, a.column, a.h_column};  // nvcc wants a named range
  for (const QuantisedCopy& copy : copies) clear_scales(on, a.format, copy);
  launch(on, tiles_of("swiglu_codes_backward", a.dh.dim[0], a.dh.dim[1], sizeof(BackwardTiles)),
         swiglu_codes_backward_kernel, a);
}

}  // namespace assay::gpu
