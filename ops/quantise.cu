#include "base/math.h"
#include "base/small_float.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/elements.h"
#include "ops/quantise.h"
#include "ops/quantise/gpu_fp8_tile.h"
#include "ops/quantise/hadamard16.h"
#include "ops/quantise/scale.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kTile = 128;    // rows and columns: a multiple of every block
constexpr int kSegment = 16;  // codes that a thread computes at once; divides every block
constexpr int kSegments = kTile / kSegment;  // segments per line
constexpr int kUnits = kTile * kSegments;    // segments per tile
// Elements from one row of the tile to the next: allows 16-byte accesses and moves the next row to
// other banks.
constexpr int kPitch = kTile + 8;
static_assert(kSegment == kHadamard && kUnits % kThreads == 0);

template <typename T>
struct Tile {
  T x[kTile][kPitch];
  uint32_t most[kTile][kSegments];  // largest magnitude per segment of the copy
  uint32_t scratch[kWarp];
};

enum class Along { kRows, kColumns };

// One of the two copies, relative to the tile.
struct Part {
  int64_t lines, k;             // size of the copy
  int64_t first_line, first_k;  // first line and k of the tile in the copy
  float s;
};

struct Unit {
  int line, segment;
};

// Row copy: eight lanes store 128 adjacent codes. Column copy: 16 lanes read adjacent columns of
// the tile.
template <Along kAlong>
GPU_DEVICE Unit unit_of(int i) {
  if constexpr (kAlong == Along::kRows) return {i / kSegments, i % kSegments};
  const int group = i / kWarp;
  return {group % 8 * 16 + i % 16, group / 8 * 2 + i % kWarp / 16};
}

template <Along kAlong, typename T>
GPU_DEVICE void read_segment(float (&v)[kSegment], const Quantise<T>& a, const Part& p,
                             const Tile<T>& tile, Unit u) {
  if constexpr (kAlong == Along::kRows) {
    load_floats(v, &tile.x[u.line][u.segment * kSegment]);
  } else {
    for (int i = 0; i < kSegment; ++i) v[i] = float(tile.x[u.segment * kSegment + i][u.line]);
    const int rows = p.first_k + u.segment * kSegment < a.x.dim[0];  // else padding, which stays +0
    if (rows && a.rotation == ColumnRotation::kHadamard16) hadamard16(v, a.signs);
  }
}

// Largest magnitude of the block that contains the segment. `whole` is the maximum of the tile,
// which is a single block if blocks are 128 x 128.
template <typename T>
GPU_DEVICE uint32_t block_most(const BlockShape& shape, const Tile<T>& tile, Unit u,
                               uint32_t whole) {
  if (shape.lines == kTile) return whole;
  const int lines = int(shape.lines), segments = int(shape.columns) / kSegment;
  const int first_line = u.line / lines * lines, first = u.segment / segments * segments;
  uint32_t most = 0;
  for (int l = first_line; l < first_line + lines; ++l) {
    for (int s = first; s < first + segments; ++s) {
      most = most < tile.most[l][s] ? tile.most[l][s] : most;
    }
  }
  return most;
}

template <typename Element, Rounding kRounding>
GPU_DEVICE void encode(uint32_t (&code)[kSegment], const float (&v)[kSegment],
                       const BlockScale& scale, const RandomKey& key, uint64_t first_element) {
  float y[kSegment];
  for (int i = 0; i < kSegment; ++i) y[i] = v[i] * scale.multiply;
  if (scale.divide != 1) {
    for (int i = 0; i < kSegment; ++i) y[i] = y[i] / scale.divide;
  }
  for (int h = 0; h < kSegment / 8; ++h) {
    if constexpr (kRounding == Rounding::kStochastic) {
      const auto words = random_block(key, first_element / 8 + uint64_t(h));
      for (int i = 0; i < 8; ++i) {
        code[8 * h + i] = Element::drawn(y[8 * h + i], words[size_t(i / 2)] >> (i % 2 * 16));
      }
    } else {
      for (int i = 8 * h; i < 8 * h + 8; ++i) code[i] = Element::nearest(y[i]);
    }
  }
  for (int i = 0; i < kSegment; ++i) code[i] = scale.divide == 0 ? 0 : code[i];
}

template <typename Element>
GPU_DEVICE void store_codes(uint8_t* to, const uint32_t (&code)[kSegment]) {
  constexpr int kBits = std::is_same_v<Element, e2m1> ? 4 : 8, kWords = kSegment * kBits / 32;
  Vec<uint32_t, kWords> packed;
  for (int w = 0; w < kWords; ++w) {
    packed[w] = 0;
    for (int i = 0; i < 32 / kBits; ++i) packed[w] |= code[w * (32 / kBits) + i] << (i * kBits);
  }
  store_whole<kWords>(reinterpret_cast<uint32_t*>(to), packed);
}

template <Along kAlong, typename T, typename Element, Rounding kRounding>
GPU_DEVICE void quantise_part(const Quantise<T>& a, const QuantisedCopy& to, const Part& p,
                              Tile<T>& tile) {
  const BlockShape shape = block_shape(a.format.scale);
  uint32_t whole = 0;

  // Amax of every segment and of the tile.
  for (int i = int(threadIdx.x); i < kUnits; i += kThreads) {
    const Unit u = unit_of<kAlong>(i);
    float v[kSegment];
    read_segment<kAlong>(v, a, p, tile, u);
    uint32_t most = 0;
    for (int e = 0; e < kSegment; ++e) {
      const uint32_t bits = magnitude_bits(v[e]);
      most = most < bits ? bits : most;
    }
    tile.most[u.line][u.segment] = most;
    whole = whole < most ? most : whole;
  }
  whole = block_reduce(whole, Max{}, 0u, tile.scratch);
  if (threadIdx.x == 0) mark_not_finite(a.not_finite, to.site, whole);

  // Scales and codes.
  const int lines_of_scale = int(lines_of_stored_scale(a.format));
  const RandomKey key = draw_key(a, to);
  for (int i = int(threadIdx.x); i < kUnits; i += kThreads) {
    const Unit u = unit_of<kAlong>(i);
    const int64_t line = p.first_line + u.line, k = p.first_k + u.segment * kSegment;
    if (line >= p.lines || k >= p.k) continue;
    const BlockScale scale = block_scale(a.format, p.s, block_most(shape, tile, u, whole));
    if (a.format.scale != ScaleKind::kTensor && k % shape.columns == 0 &&
        u.line % lines_of_scale == 0) {
      const int64_t at = scale_index(a.format, p.lines, p.k, line, k / shape.columns);
      if (has_float_scales(a.format.scale)) {
        to.scales[at] = scale.decode;
      } else {
        to.scale_codes[at] = uint8_t(scale.code);
      }
    }
    float v[kSegment];
    uint32_t code[kSegment];
    read_segment<kAlong>(v, a, p, tile, u);
    encode<Element, kRounding>(code, v, scale, key, uint64_t(line * p.k + k));
    store_codes<Element>(to.codes.row(line) + code_bytes(a.format.element, k), code);
  }
}

GPU_DEVICE float tensor_scale_of(const QuantFormat& f, const QuantisedCopy& to) {
  return has_tensor_scale(f.scale) ? store_tensor_scale(f, to) : 1.0f;
}

// Each block owns a tile of 128 x 128 and reads it once into shared memory. Each thread owns 16
// adjacent elements of a line of a copy at a time, four per copy, and reads them twice: for the
// amax, then for the codes. Columns are rotated both times, which costs 64 additions and saves 64
// KB of shared memory. Bound by memory: x once, both copies.
template <typename T, typename Element, Rounding kRounding>
__global__ __launch_bounds__(kThreads) void quantise_kernel(const __grid_constant__ Quantise<T> a,
                                                            const int vectors) {
  GPU_DYNAMIC_SHARED(Tile<T>, tile);
  const int64_t rows = a.x.dim[0], columns = a.x.dim[1];
  const int64_t r0 = int64_t{blockIdx.x} * kTile, c0 = int64_t{blockIdx.y} * kTile;

  // Load the tile; zeros outside x.
  for (int i = int(threadIdx.x); i < kTile * kTile / kVector; i += kThreads) {
    const int r = i / (kTile / kVector), c = i % (kTile / kVector) * kVector;
    T* const to = &tile->x[r][c];
    if (vectors && r0 + r < rows && c0 + c < columns) {
      const T* const from = &a.x.at(r0 + r, c0 + c);
      constexpr int kAccess = 16 / int(sizeof(T));
      for (int e = 0; e < kVector; e += kAccess)
        store_whole<kAccess>(to + e, load_vec<kAccess>(from + e));
      continue;
    }
    for (int e = 0; e < kVector; ++e) {
      const int inside = r0 + r < rows && c0 + c + e < columns;
      to[e] = inside ? a.x.at(r0 + r, c0 + c + e) : T(0.0f);
    }
  }
  sync_block();

  // Row copy.
  if (!a.row.codes.empty()) {
    const Part p{rows, columns, r0, c0, tensor_scale_of(a.format, a.row)};
    quantise_part<Along::kRows, T, Element, kRounding>(a, a.row, p, *tile);
    sync_block();
  }

  // Column copy.
  if (a.column.codes.empty()) return;
  const int64_t k = padded_length(a.format.scale, rows);
  const Part p{columns, k, c0, r0, tensor_scale_of(a.format, a.column)};
  quantise_part<Along::kColumns, T, Element, kRounding>(a, a.column, p, *tile);
}

// The same for the formats of ops/quantise/gpu_fp8_tile.h: every value is read once. A thread takes
// 16 adjacent elements of x, encodes them along the row and stores them in the tile for the
// columns.
template <typename Element, ScaleKind kScale>
__global__ __launch_bounds__(kCodeThreads) void quantise_bytes_kernel(
    const __grid_constant__ Quantise<bf16> a) {
  GPU_DYNAMIC_SHARED(CodeTile, tile);
  const CodePlace p{a.x.dim[0], a.x.dim[1], int64_t{blockIdx.x} * kCodeTile,
                    int64_t{blockIdx.y} * kCodeTile};
  const Coder<Element, kScale> coder(a.format);
  const int by_row = !a.row.codes.empty(), by_column = !a.column.codes.empty();

  // Row copy; fill the tile.
  using Copy = CodeCopy<Coder<Element, kScale>>;
  const Copy row = by_row ? begin_copy(coder, a.row, a.not_finite, p) : Copy{coder};
#pragma unroll 2
  for (int i = int(threadIdx.x); i < kCodeTile * kCodeAcross; i += kCodeThreads) {
    const int r = i / kCodeAcross, run = i % kCodeAcross;
    const int64_t line = p.row + r, k = p.column + run * kCodeRun;
    const CodePairs x = line < p.rows && k < p.columns ? load_run(&a.x.at(line, k)) : CodePairs{};
    if (by_column) keep_run(*tile, r, run, x);
    if (by_row) code_row(row, r, run, x);
  }

  // Column copy.
  if (!by_column) return;
  const Copy column = begin_copy(coder, a.column, a.not_finite, p);
  sync_block();
  code_columns(column, *tile);
}

// Writes S if x is empty, since no tile does.
__global__ void tensor_scale_kernel(const QuantFormat f, const QuantisedCopy to) {
  tensor_scale_of(f, to);
}

bool has_bytes_kernel(const Quantise<bf16>& a) {
  const QuantFormat& f = a.format;
  return f.element != ElementFormat::kE2M1 && f.rounding == Rounding::kNearest &&
         (f.scale == ScaleKind::kTensor || f.scale == ScaleKind::k1x128) &&
         a.rotation == ColumnRotation::kNone && in_vectors(a.x.data, a.x.dim[1]) &&
         a.x.dim[1] % kCodeRun == 0;
}

template <typename Element, ScaleKind kScale>
void launch_bytes(Exec on, const Quantise<bf16>& a) {
  launch(on,
         {.name = "quantise",
          .grid = {unsigned(ceil_div(a.x.dim[0], kCodeTile)),
                   unsigned(ceil_div(a.x.dim[1], kCodeTile))},
          .block = {kCodeThreads},
          .shared_bytes = a.column.codes.empty() ? 0 : int64_t(sizeof(CodeTile))},
         quantise_bytes_kernel<Element, kScale>, a);
}
template <typename Element>
void launch_bytes(Exec on, const Quantise<bf16>& a) {
  a.format.scale == ScaleKind::kTensor ? launch_bytes<Element, ScaleKind::kTensor>(on, a)
                                       : launch_bytes<Element, ScaleKind::k1x128>(on, a);
}

template <typename T, typename Element, Rounding kRounding>
void launch_quantise(Exec on, const Quantise<T>& a) {
  const int64_t rows = a.x.dim[0], columns = a.x.dim[1];
  const auto prepare = [&](const QuantisedCopy& copy, int64_t lines, int64_t k) {
    if (copy.codes.empty()) return;
    clear_scale_padding(on, a.format, copy, lines, k);
    if (a.x.size() == 0 && has_tensor_scale(a.format.scale)) {
      launch(on, {.name = "tensor_scale", .grid = {1}, .block = {1}}, tensor_scale_kernel, a.format,
             copy);
    }
  };
  prepare(a.row, rows, columns);
  prepare(a.column, columns, padded_length(a.format.scale, rows));
  if constexpr (std::is_same_v<T, bf16>) {
    if (has_bytes_kernel(a)) {
      return a.format.element == ElementFormat::kE4M3 ? launch_bytes<e4m3>(on, a)
                                                      : launch_bytes<e5m2>(on, a);
    }
  }
  const int vectors = in_vectors(a.x.data, columns);
  launch(on,
         {.name = "quantise",
          .grid = {unsigned(ceil_div(rows, kTile)), unsigned(ceil_div(columns, kTile))},
          .block = {kThreads},
          .shared_bytes = sizeof(Tile<T>)},
         quantise_kernel<T, Element, kRounding>, a, vectors);
}

template <typename T, typename Element>
void launch_quantise(Exec on, const Quantise<T>& a) {
  if (a.format.rounding == Rounding::kNearest) {
    return launch_quantise<T, Element, Rounding::kNearest>(on, a);
  }
  launch_quantise<T, Element, Rounding::kStochastic>(on, a);
}

template <typename T>
void launch_quantise(Exec on, const Quantise<T>& a) {
  switch (a.format.element) {
    case ElementFormat::kE4M3:
      return launch_quantise<T, e4m3>(on, a);
    case ElementFormat::kE5M2:
      return launch_quantise<T, e5m2>(on, a);
    case ElementFormat::kE2M1:
      return launch_quantise<T, e2m1>(on, a);
  }
}

}  // namespace

void quantise(Exec on, const Quantise<float>& a) {
  launch_quantise(on, a);
}
void quantise(Exec on, const Quantise<bf16>& a) {
  launch_quantise(on, a);
}

}  // namespace assay::gpu
