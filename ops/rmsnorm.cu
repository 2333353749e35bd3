#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/elements.h"
#include "ops/rmsnorm.h"

namespace assay::gpu {

namespace {

constexpr int kWarps = 8;
constexpr int kThreads = kWarps * kWarp;
constexpr int kPiece = kWarp * kVector;  // columns that a warp takes at once: a piece
constexpr int kMostPieces = 4;           // pieces per row in registers: up to 1024 columns

// A row in the registers of a warp: lane l has columns 8 l to 8 l + 7 of each piece of 256.
template <int kPieces>
struct Row {
  float x[kPieces][kVector];

  template <typename T>
  GPU_DEVICE void load(const T* row, int width) {
    for (int p = 0; p < kPieces; ++p) {
      const int c = p * kPiece + lane() * kVector;
      if (c < width) {
        load_floats(x[p], row + c);
      } else {
        for (int e = 0; e < kVector; ++e) x[p][e] = 0.0f;
      }
    }
  }
  template <typename T>
  GPU_DEVICE void store(T* row, int width) const {
    for (int p = 0; p < kPieces; ++p) {
      const int c = p * kPiece + lane() * kVector;
      if (c < width) store_floats(row + c, x[p]);
    }
  }
  GPU_DEVICE void take(AmaxAccumulator& most, int width) const {
    for (int p = 0; p < kPieces; ++p) {
      if (p * kPiece + lane() * kVector < width) most.take(x[p]);
    }
  }
};

// A row of bf16 as it is in memory: half the registers.
template <int kPieces>
struct PackedRow {
  Vec<uint32_t, kVector / 2> x[kPieces] = {};

  GPU_DEVICE void load(const bf16* row, int width) {
    for (int p = 0; p < kPieces; ++p) {
      const int c = p * kPiece + lane() * kVector;
      if (c < width) x[p] = load_vec<kVector / 2>(reinterpret_cast<const uint32_t*>(row + c));
    }
  }
  GPU_DEVICE void store_piece(int p, bf16* to) const {
    store_whole<kVector / 2>(reinterpret_cast<uint32_t*>(to), x[p]);
  }
  GPU_DEVICE float at(int p, int e) const {
    return e % 2 == 0 ? unpack_low(x[p][e / 2]) : unpack_high(x[p][e / 2]);
  }
  GPU_DEVICE void compute_piece_anew(int p) { compute_anew(x[p]); }
};

template <typename T>
GPU_DEVICE float rounded(float x) {
  T y;
  round_to(y, x);
  return float(y);
}

GPU_DEVICE float rstd_of(float squares, int width, float eps) {
  return reciprocal_sqrt(squares / float(width) + eps);
}

template <typename T, int kPieces>
GPU_DEVICE void normalise_row(const RmsNormForward<T>& a, int64_t i, AmaxAccumulator& most) {
  const int width = int(a.x.dim[1]);
  Row<kPieces> r, weight;
  r.load(a.x.row(i), width);
  if (!a.branch.empty()) {
    Row<kPieces> branch;
    branch.load(a.branch.row(i), width);
    for (int p = 0; p < kPieces; ++p) {
      for (int e = 0; e < kVector; ++e) {
        r.x[p][e] = rounded<T>(r.x[p][e] + a.gain * branch.x[p][e]);
      }
    }
    r.store(a.resid.row(i), width);
  }

  // Mean square.
  float squares = 0;
  for (int p = 0; p < kPieces; ++p) {
    for (int e = 0; e < kVector; ++e) squares += r.x[p][e] * r.x[p][e];
  }
  const float rstd = rstd_of(warp_sum(squares), width, a.eps);
  if (lane() == 0) a.rstd[i] = rstd;

  // Normalise and store.
  weight.load(a.weight.data, width);
  for (int p = 0; p < kPieces; ++p) {
    for (int e = 0; e < kVector; ++e) r.x[p][e] = weight.x[p][e] * (r.x[p][e] * rstd);
  }
  r.store(a.y.row(i), width);
  r.take(most, width);
}

// Each warp owns a row and keeps it in registers: x and branch are read once, r and y are written
// once, the weight comes from L1. Bound by memory.
template <typename T, int kPieces>
__global__ __launch_bounds__(kThreads) void rmsnorm_forward_kernel(
    const __grid_constant__ RmsNormForward<T> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int64_t i = int64_t{blockIdx.x} * kWarps + warp();
  AmaxAccumulator most{a.amax.data};
  if (i < a.x.dim[0]) normalise_row<T, kPieces>(a, i, most);
  most.raise<T>(scratch);
}

// The same for rows of any width and alignment, one element at a time; rows are read twice, the
// second time mostly from L1. A lane reads back only what it wrote itself.
template <typename T>
GPU_DEVICE void normalise_row_of_any_width(const RmsNormForward<T>& a, int64_t i,
                                           AmaxAccumulator& most) {
  const int width = int(a.x.dim[1]);
  const T* r = a.x.row(i);
  float squares = 0;
  for (int c = lane(); c < width; c += kWarp) {
    float value = float(r[c]);
    if (!a.branch.empty()) {
      value = rounded<T>(value + a.gain * float(a.branch.at(i, c)));
      round_to(a.resid.at(i, c), value);
    }
    squares += value * value;
  }
  const float rstd = rstd_of(warp_sum(squares), width, a.eps);
  if (lane() == 0) a.rstd[i] = rstd;
  if (!a.branch.empty()) r = a.resid.row(i);
  for (int c = lane(); c < width; c += kWarp) {
    const float y[] = {a.weight[c] * (float(r[c]) * rstd)};
    round_to(a.y.at(i, c), y[0]);
    most.take(y);
  }
}
template <typename T>
__global__ __launch_bounds__(kThreads) void rmsnorm_forward_kernel_any_width(
    const __grid_constant__ RmsNormForward<T> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int64_t i = int64_t{blockIdx.x} * kWarps + warp();
  AmaxAccumulator most{a.amax.data};
  if (i < a.x.dim[0]) normalise_row_of_any_width(a, i, most);
  most.raise<T>(scratch);
}

// The warps' shares of a row of partial weight gradients, added in warp order. sums: shared memory.
template <int kPieces>
GPU_DEVICE void add_shares(float* partial, const Row<kPieces>& dweight,
                           float (*sums)[kPieces * kPiece], int width) {
  dweight.store(sums[warp()], kPieces * kPiece);
  sync_block();
  for (int c = thread_in_block(); c < width; c += kThreads) {
    float sum = 0;
    for (int w = 0; w < kWarps; ++w) sum += sums[w][c];
    partial[c] = sum;
  }
}

// Each block owns `rows_per_block` rows and one row of partial weight gradients. A warp takes every
// eighth row and keeps its share of the gradients in registers; the shares are added through shared
// memory in warp order. Bound by memory: dy, r and dresid read, dresid (and dbranch) written.
template <typename T, int kPieces>
__global__ __launch_bounds__(kThreads) void rmsnorm_backward_kernel(
    const __grid_constant__ RmsNormBackward<T> a, int rows_per_block) {
  GPU_SHARED(float, sums, [kWarps][kPieces * kPiece]);
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const int width = int(a.dy.dim[1]);
  const int64_t begin = int64_t{blockIdx.x} * rows_per_block;
  const int64_t end = begin + rows_per_block < a.dy.dim[0] ? begin + rows_per_block : a.dy.dim[0];
  AmaxAccumulator most{a.amax.data};
  Row<kPieces> dweight;
  for (int p = 0; p < kPieces; ++p) {
    for (int e = 0; e < kVector; ++e) dweight.x[p][e] = 0.0f;
  }
  for (int64_t i = begin + warp(); i < end; i += kWarps) {
    Row<kPieces> dy, rhat;
    dy.load(a.dy.row(i), width);
    rhat.load(a.resid.row(i), width);
    const float rstd = a.rstd[i];
    float dot = 0;
    for (int p = 0; p < kPieces; ++p) {
      const int c = p * kPiece + lane() * kVector;
      float weight[kVector] = {};
      if (c < width) load_floats(weight, a.weight.data + c);
      for (int e = 0; e < kVector; ++e) {
        rhat.x[p][e] *= rstd;
        dweight.x[p][e] += dy.x[p][e] * rhat.x[p][e];
        dy.x[p][e] *= weight[e];
        dot += dy.x[p][e] * rhat.x[p][e];
      }
    }
    const float mean = warp_sum(dot) / float(width);
    for (int p = 0; p < kPieces; ++p) {
      const int c = p * kPiece + lane() * kVector;
      if (c >= width) continue;
      float dresid[kVector];
      load_floats(dresid, a.dresid.row(i) + c);
      for (int e = 0; e < kVector; ++e) {
        dresid[e] = rounded<T>(dresid[e] + rstd * (dy.x[p][e] - rhat.x[p][e] * mean));
      }
      store_floats(a.dresid.row(i) + c, dresid);
      if (!a.dbranch.empty()) {
        for (int e = 0; e < kVector; ++e) dresid[e] *= a.gain;
        store_floats(a.dbranch.row(i) + c, dresid);
      }
      most.take(dresid);
    }
  }
  most.raise<T>(scratch);
  add_shares<kPieces>(a.partial.row(blockIdx.x), dweight, sums, width);
}

constexpr int kHalf = kVector / 2;  // weights that a lane reads at once

// The same for bf16 without an amax. Rows stay as they are in memory, so that three blocks of 80
// registers fit on an SM up to 768 columns, where rows of floats leave room for two. All loads of a
// row are under way together. On an H200 142.9 us instead of 163.8 for 65,536 rows of 768.
template <int kPieces>
constexpr int kPackedBlocks = kPieces < kMostPieces ? 3 : 2;
template <int kPieces>
__global__ __launch_bounds__(kThreads, kPackedBlocks<kPieces>) void rmsnorm_backward_kernel_packed(
    const __grid_constant__ RmsNormBackward<bf16> a, int rows_per_block) {
  GPU_SHARED(float, sums, [kWarps][kPieces * kPiece]);
  const int width = int(a.dy.dim[1]);
  const int64_t begin = int64_t{blockIdx.x} * rows_per_block;
  const int64_t end = begin + rows_per_block < a.dy.dim[0] ? begin + rows_per_block : a.dy.dim[0];
  Row<kPieces> dweight;
  for (int p = 0; p < kPieces; ++p) {
    for (int e = 0; e < kVector; ++e) dweight.x[p][e] = 0.0f;
  }
  for (int64_t i = begin + warp(); i < end; i += kWarps) {
    PackedRow<kPieces> dy, r, dresid;
    dy.load(a.dy.row(i), width);
    r.load(a.resid.row(i), width);
    dresid.load(a.dresid.row(i), width);
    const float rstd = a.rstd[i];
    float dot = 0;
    for (int p = 0; p < kPieces; ++p) {
      const int c = p * kPiece + lane() * kVector;
      if (c >= width) continue;
      for (int first = 0; first < kVector; first += kHalf) {
        dy.compute_piece_anew(p);  // the weights of one half at a time
        float weight[kHalf];
        load_floats(weight, a.weight.data + c + first);
        for (int e = first; e < first + kHalf; ++e) {
          const float rhat = r.at(p, e) * rstd, scaled = dy.at(p, e) * weight[e - first];
          dweight.x[p][e] += dy.at(p, e) * rhat;
          dot += scaled * rhat;
        }
      }
    }
    const float mean = warp_sum(dot) / float(width);
    for (int p = 0; p < kPieces; ++p) {
      const int c = p * kPiece + lane() * kVector;
      if (c >= width) continue;
      r.compute_piece_anew(p);  // else a row of floats stays for its second use
      for (int first = 0; first < kVector; first += kHalf) {
        dy.compute_piece_anew(p);
        float weight[kHalf];
        load_floats(weight, a.weight.data + c + first);
        for (int e = first; e < first + kHalf; e += 2) {
          float sum[2];
          for (int j = 0; j < 2; ++j) {
            const float rhat = r.at(p, e + j) * rstd,
                        scaled = dy.at(p, e + j) * weight[e + j - first];
            sum[j] = dresid.at(p, e + j) + rstd * (scaled - rhat * mean);
          }
          dresid.x[p][e / 2] = pack_bf16(sum[0], sum[1]);
        }
      }
      dresid.store_piece(p, a.dresid.row(i) + c);
      if (a.dbranch.empty()) continue;
      float dbranch[kVector];
      for (int e = 0; e < kVector; ++e) dbranch[e] = dresid.at(p, e) * a.gain;
      store_floats(a.dbranch.row(i) + c, dbranch);
    }
  }
  add_shares<kPieces>(a.partial.row(blockIdx.x), dweight, sums, width);
}

// The same for any width and alignment: first one warp per row, then one thread per column, which
// reads dy and r of the block again.
template <typename T>
__global__ __launch_bounds__(kThreads) void rmsnorm_backward_kernel_any_width(
    const __grid_constant__ RmsNormBackward<T> a, int rows_per_block) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  AmaxAccumulator most{a.amax.data};
  const int width = int(a.dy.dim[1]);
  const int64_t begin = int64_t{blockIdx.x} * rows_per_block;
  const int64_t end = begin + rows_per_block < a.dy.dim[0] ? begin + rows_per_block : a.dy.dim[0];
  for (int64_t i = begin + warp(); i < end; i += kWarps) {
    const float rstd = a.rstd[i];
    float dot = 0;
    for (int c = lane(); c < width; c += kWarp) {
      dot += a.weight[c] * float(a.dy.at(i, c)) * (float(a.resid.at(i, c)) * rstd);
    }
    const float mean = warp_sum(dot) / float(width);
    for (int c = lane(); c < width; c += kWarp) {
      const float rhat = float(a.resid.at(i, c)) * rstd;
      const float dr = rstd * (a.weight[c] * float(a.dy.at(i, c)) - rhat * mean);
      round_to(a.dresid.at(i, c), float(a.dresid.at(i, c)) + dr);
      float stored[] = {float(a.dresid.at(i, c))};
      if (!a.dbranch.empty()) {
        stored[0] *= a.gain;
        round_to(a.dbranch.at(i, c), stored[0]);
      }
      most.take(stored);
    }
  }
  most.raise<T>(scratch);
  for (int c = thread_in_block(); c < width; c += kThreads) {
    float sum = 0;
    for (int64_t i = begin; i < end; ++i) {
      sum += float(a.dy.at(i, c)) * (float(a.resid.at(i, c)) * a.rstd[i]);
    }
    a.partial.at(blockIdx.x, c) = sum;
  }
}

// dweight += column sums of the partials. Each block owns 32 columns; each of its 32 warps adds a
// run of rows in order, and the runs are added in order. 4 bytes per partial, small next to the
// kernel before it.
constexpr int kRuns = 32;
__global__ __launch_bounds__(kRuns* kWarp) void rmsnorm_add_partials_kernel(
    View<float, 1> dweight, View<const float, 2> partial, int rows) {
  GPU_SHARED(float, sums, [kRuns][kWarp]);
  const int c = int(blockIdx.x) * kWarp + lane();
  const int run = ceil_div(rows, kRuns);
  const int begin = warp() * run, end = begin + run < rows ? begin + run : rows;
  float sum = 0;
  if (c < dweight.dim[0]) {
    for (int b = begin; b < end; ++b) sum += partial.at(b, c);
  }
  sums[warp()][lane()] = sum;
  sync_block();
  if (warp() != 0 || c >= dweight.dim[0]) return;
  float total = dweight[c];
  for (int w = 0; w < kRuns; ++w) total += sums[w][lane()];
  dweight[c] = total;
}

// Calls f with the number of pieces per row as a constant, or with 0 if rows do not fit in
// registers.
template <typename F>
void with_pieces(bool vectors, int64_t width, F&& f) {
  const int64_t pieces = ceil_div(width, kPiece);
  if (!vectors || pieces > kMostPieces) return f.template operator()<0>();
  switch (pieces) {
    case 1:
      return f.template operator()<1>();
    case 2:
      return f.template operator()<2>();
    case 3:
      return f.template operator()<3>();
    default:
      return f.template operator()<4>();
  }
}

template <typename T>
void launch_forward(Exec on, const RmsNormForward<T>& a) {
  const int64_t rows = a.x.dim[0], width = a.x.dim[1];
  const Launch how{
      .name = "rmsnorm_forward", .grid = {uint32_t(ceil_div(rows, kWarps))}, .block = {kThreads}};
  const bool vectors = in_vectors(a.x.data, width) && in_vectors(a.y.data, width) &&
                       in_vectors(a.weight.data, width) && in_vectors(a.branch.data, width) &&
                       in_vectors(a.resid.data, width);
  with_pieces(vectors, width, [&]<int kPieces>() {
    if constexpr (kPieces > 0) {
      launch(on, how, rmsnorm_forward_kernel<T, kPieces>, a);
    } else {
      launch(on, how, rmsnorm_forward_kernel_any_width<T>, a);
    }
  });
}

template <typename T>
void launch_backward(Exec on, const RmsNormBackward<T>& a) {
  const int64_t rows = a.dy.dim[0], width = a.dy.dim[1], blocks = rmsnorm_backward_blocks(rows);
  if (blocks == 0) return;
  const int rows_per_block = int(ceil_div(rows, blocks));
  const bool packed = a.amax.empty();
  const Launch how{.name = "rmsnorm_backward", .grid = {uint32_t(blocks)}, .block = {kThreads}};
  const bool vectors = in_vectors(a.dy.data, width) && in_vectors(a.resid.data, width) &&
                       in_vectors(a.dresid.data, width) && in_vectors(a.weight.data, width) &&
                       in_vectors(a.dbranch.data, width);
  with_pieces(vectors, width, [&]<int kPieces>() {
    if constexpr (kPieces > 0) {
      if constexpr (std::is_same_v<T, bf16>) {
        if (packed) {
          return launch(on, how, rmsnorm_backward_kernel_packed<kPieces>, a, rows_per_block);
        }
      }
      launch(on, how, rmsnorm_backward_kernel<T, kPieces>, a, rows_per_block);
    } else {
      launch(on, how, rmsnorm_backward_kernel_any_width<T>, a, rows_per_block);
    }
  });
  launch(on,
         {.name = "rmsnorm_add_partials",
          .grid = {uint32_t(ceil_div(width, kWarp))},
          .block = {kRuns * kWarp}},
         rmsnorm_add_partials_kernel, a.dweight, a.partial, int(blocks));
}

}  // namespace

void rmsnorm_forward(Exec on, const RmsNormForward<float>& a) {
  launch_forward(on, a);
}
void rmsnorm_forward(Exec on, const RmsNormForward<bf16>& a) {
  launch_forward(on, a);
}
void rmsnorm_backward(Exec on, const RmsNormBackward<float>& a) {
  launch_backward(on, a);
}
void rmsnorm_backward(Exec on, const RmsNormBackward<bf16>& a) {
  launch_backward(on, a);
}

}  // namespace assay::gpu
