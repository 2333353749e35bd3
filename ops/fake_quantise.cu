#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/fake_quantise.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/elements.h"
#include "ops/quantise/block_stats.h"
#include "ops/quantise/hadamard16.h"
#include "ops/quantise/partition.h"
#include "ops/quantise/round_to_format.h"
#include "ops/quantise/scale.h"
#include "ops/zero.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kColumns = int(kFakeColumns);
constexpr int kUnit = 16;  // adjacent elements of a line that a thread takes at once: a unit
constexpr int kAcross = kColumns / kUnit;  // units per row
// Elements from one row of the tile to the next; the padding moves the next row to other banks.
constexpr int kPitch = kColumns + 8;
static_assert(kUnit == kHadamard && kColumns % kWarp == 0);

// Merges two values of a measure: sums are added, of the others the larger is kept.
struct Merged {
  int measure;
  template <typename T>
  GPU_DEVICE T operator()(T a, T b) const {
    if (measure < kFakeSums) return a + b;
    return a < b ? b : a;
  }
};

template <typename X, int kBand>
struct Tile {
  static constexpr int kUnits = kBand * kAcross;
  X x[kBand][kPitch];
  uint32_t most[kUnits];  // largest magnitude per unit of the copy
  uint32_t scratch[kWarp];
  double sums[kWarp];
};

// First element of a unit in the tile. A row copy has units of 1 x 16, eight lanes per row; a
// column copy has units of 16 x 1, 32 columns per warp.
struct Unit {
  int row, column;
};
template <FakeWay kWay>
GPU_DEVICE Unit unit_of(int i) {
  if constexpr (kWay == FakeWay::kRow) return {i / kAcross, i % kAcross * kUnit};
  return {i / kColumns * kUnit, i % kColumns};
}
template <FakeWay kWay>
GPU_DEVICE int unit_at(int row, int column) {
  if constexpr (kWay == FakeWay::kRow) return row * kAcross + column / kUnit;
  return row / kUnit * kColumns + column;
}

// The tile's rows and first column in z, and the number of the piece.
struct Place {
  int64_t begin, column, number;
  int height;
};

template <FakeWay kWay, typename X, int kBand>
GPU_DEVICE void read_unit(float (&v)[kUnit], const FakeQuantise<X>& a, const Place& p,
                          const Tile<X, kBand>& tile, Unit u) {
  if constexpr (kWay == FakeWay::kRow) {
    load_floats(v, &tile.x[u.row][u.column]);
  } else {
    for (int i = 0; i < kUnit; ++i) v[i] = float(tile.x[u.row + i][u.column]);
    const int whole = u.row + kUnit <= p.height;
    if (whole && a.rotation == ColumnRotation::kHadamard16) hadamard16(v, a.signs);
  }
}

// Largest magnitude of the block that contains the unit. `whole` is the maximum of the tile, which
// is a single block if blocks are 128 x 128.
template <FakeWay kWay, typename X, int kBand>
GPU_DEVICE uint32_t block_most(const BlockShape& block, const Tile<X, kBand>& tile, Unit u,
                               uint32_t whole) {
  if (block.lines == kHighBand && block.columns == kColumns) return whole;
  constexpr int kRows = kWay == FakeWay::kRow ? 1 : kUnit, kWide = kUnit / kRows;
  const int lines = int(block.lines), columns = int(block.columns);
  const int first_row = u.row / lines * lines, first_column = u.column / columns * columns;
  uint32_t most = 0;
  for (int r = first_row; r < first_row + lines; r += kRows) {
    for (int c = first_column; c < first_column + columns; c += kWide) {
      const uint32_t bits = tile.most[unit_at<kWay>(r, c)];
      most = most < bits ? bits : most;
    }
  }
  return most;
}

// Draws 16 bits for each element of a unit, from number `element` on: a multiple of 8 for a row
// copy, arbitrary for a column copy. Takes three generator blocks and shifts out the draws before
// `element`.
GPU_DEVICE void draw_unit(uint32_t (&half)[kUnit], const RandomKey& key, uint64_t element) {
  constexpr int kWords = 12;
  uint32_t w[kWords + 2] = {};
  for (int b = 0; b < kWords / 4; ++b) {
    const auto words = random_block(key, element / 8 + uint64_t(b));
    for (int i = 0; i < 4; ++i) w[4 * b + i] = words[size_t(i)];
  }
  for (int i = 0; i < kWords; ++i) w[i] = element & 4 ? w[i + 2] : w[i];
  for (int i = 0; i < kWords; ++i) w[i] = element & 2 ? w[i + 1] : w[i];
  for (int i = 0; i < kUnit; ++i) {
    const uint32_t even = w[i / 2] >> (i % 2 * 16);
    const uint32_t odd = w[(i + 1) / 2] >> ((i + 1) % 2 * 16);
    half[i] = (element & 1 ? odd : even) & 0xFFFFu;
  }
}

// Kernel variants, because registers set the number of warps per SM: unsampled steps that round to
// nearest, unsampled steps with stochastic rounding, and sampled steps, which measure with either
// rounding.
enum class Work { kNearest, kDraws, kMeasures };

// Quantises and dequantises a unit; y receives the bits of bf16.
template <Work kWork>
GPU_DEVICE void encode_unit(uint32_t (&y)[kUnit], const float (&v)[kUnit], const QuantFormat& f,
                            const BlockScale& scale, const RandomKey& key, uint64_t element) {
  const float decode = decode_factor(f, scale);
  const ElementGrid grid = element_grid(f.element);
  if (scale.divide == 0) {
    for (int i = 0; i < kUnit; ++i) y[i] = decode == decode ? 0u : 0x7FC0u;
    return;
  }
  float scaled[kUnit];
  for (int i = 0; i < kUnit; ++i) scaled[i] = v[i] * scale.multiply;
  if (scale.divide != 1) {
    for (int i = 0; i < kUnit; ++i) scaled[i] = scaled[i] / scale.divide;
  }
  if (kWork != Work::kNearest && f.rounding == Rounding::kStochastic) {
    uint32_t half[kUnit];
    draw_unit(half, key, element);
    for (int i = 0; i < kUnit; ++i) scaled[i] = grid.drawn(scaled[i], half[i]);
  } else {
    for (int i = 0; i < kUnit; ++i) scaled[i] = grid.nearest(scaled[i]);
  }
  for (int i = 0; i < kUnit; ++i) {
    const uint32_t sign = std::bit_cast<uint32_t>(v[i]) >> 16 & 0x8000u;
    y[i] = bf16::round_nearest_even(scaled[i] * decode) | sign;
  }
}

// Adds the measures of the first `count` elements to sums[FakeMeasure]; flips are counted in
// flips_of_unit.
GPU_DEVICE void measure_unit(double (&sums)[kFakeFlips], const float (&v)[kUnit],
                             const uint32_t (&y)[kUnit], int count, const QuantFormat& f,
                             const BlockScale& scale, float s) {
  const float largest = largest_element(f.element);
  for (int i = 0; i < kUnit; ++i) {
    if (i >= count) continue;
    const float got = std::bit_cast<float>(y[i] << 16);
    const float magnitude = v[i] < 0 ? -v[i] : v[i];
    const double error = double(got) / double(s) - double(v[i]);
    sums[kFakeValues] += 1;
    sums[kFakeFlushed] += v[i] != 0 && got == 0 ? 1 : 0;
    if (scale.divide != 0) {
      sums[kFakeSaturated] += magnitude * scale.multiply / scale.divide > largest ? 1 : 0;
    }
    sums[kFakeErrors] += error * error;
    sums[kFakeSquares] += double(v[i]) * double(v[i]);
  }
}

// Number of codes, among the first `count` of the unit, that differ from the earlier copy, which y
// still holds.
template <FakeWay kWay>
GPU_DEVICE uint32_t flips_of_unit(const View<bf16, 2>& earlier, int64_t row, int64_t column,
                                  float earlier_decode, const uint32_t (&y)[kUnit], float decode,
                                  const ElementGrid& grid, int count) {
  uint32_t flips = 0;
  for (int i = 0; i < kUnit; ++i) {
    if (i >= count) continue;
    const uint32_t was =
        kWay == FakeWay::kRow ? earlier.at(row, column + i).bits : earlier.at(row + i, column).bits;
    flips += number_of_code(grid, was, earlier_decode) != number_of_code(grid, y[i], decode);
  }
  return flips;
}

// Stores a unit; its first `count` elements are inside z.
template <FakeWay kWay>
GPU_DEVICE void store_unit(const View<bf16, 2>& to, int64_t row, int64_t column,
                           const uint32_t (&y)[kUnit], int count, int vectors) {
  if constexpr (kWay == FakeWay::kRow) {
    if (vectors) {
      auto* const words = reinterpret_cast<uint32_t*>(&to.at(row, column));
      for (int h = 0; h < kUnit / 2; h += 4) {
        Vec<uint32_t, 4> packed;
        for (int i = 0; i < 4; ++i) packed[i] = y[2 * (h + i)] | y[2 * (h + i) + 1] << 16;
        store_whole<4>(words + h, packed);
      }
      return;
    }
    for (int i = 0; i < kUnit; ++i) to.at(row, column + i).bits = uint16_t(y[i]);
  } else {
    for (int i = 0; i < kUnit; ++i) {
      if (i < count) to.at(row + i, column).bits = uint16_t(y[i]);
    }
  }
}

// Tensor scale S. One thread of the grid stores S and 1 / S.
template <typename X>
GPU_DEVICE float tensor_scale_of(const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  if (!has_tensor_scale(copy.format.scale)) return 1.0f;
  const float s = tensor_scale(copy.format, a.amax_of(way));
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    copy.tensor_scale[0] = s;
    copy.tensor_scale[1] = s == s ? 1.0f / s : kScaleNaN;
  }
  return s;
}

// Index of the scale of the unit's block in FakeCopy::scales.
GPU_DEVICE int64_t scale_at(const Place& p, const BlockShape& block, int band, Unit u) {
  const int64_t across = kColumns / block.columns;
  return p.number * blocks_of_tile(block, band) + u.row / block.lines * across +
         u.column / block.columns;
}

// Runs once per block of the copy: stores its scale and, on sampled steps, counts it. If flips are
// counted, call it after sync_block(): until then the stored scales are those of the earlier copy.
template <FakeWay kWay, typename X, int kBand>
GPU_DEVICE BlockCounts finish_blocks(const FakeQuantise<X>& a, const FakeCopy& copy, const Place& p,
                                     const Tile<X, kBand>& tile, float s, uint32_t whole) {
  BlockCounts counts;
  if (copy.format.scale == ScaleKind::kTensor) return counts;
  const BlockShape block = fake_block(copy.format.scale, kWay);
  for (int i = int(threadIdx.x); i < tile.kUnits; i += kThreads) {
    const Unit u = unit_of<kWay>(i);
    const int first = u.row % block.lines == 0 && u.column % block.columns == 0;
    if (!first || u.row >= p.height || p.column + u.column >= a.x.dim[1]) continue;
    const uint32_t most = block_most<kWay>(block, tile, u, whole);
    const BlockScale scale = block_scale(copy.format, s, most);
    counts.add(copy.format, scale, most);
    if (copy.scales.empty()) continue;
    const float decode = decode_factor(copy.format, scale);
    copy.scales[scale_at(p, block, kBand, u)].bits = bf16::round_nearest_even(decode);
  }
  return counts;
}

template <Work kWork, FakeWay kWay, typename X, int kBand>
GPU_DEVICE void quantise_copy(const FakeQuantise<X>& a, const FakeCopy& copy, const Place& p,
                              Tile<X, kBand>& tile, int vectors) {
  const BlockShape block = fake_block(copy.format.scale, kWay);
  const float s = tensor_scale_of(a, copy, kWay);
  const RandomKey key = draw_key(a, copy);
  const int64_t length = draw_length(a, copy, kWay);
  const int flips_count = kWork == Work::kMeasures && copy.flips == Flips::kCounted;
  double sums[kFakeFlips] = {};
  uint32_t whole = 0, flips = 0;

  // Amax of every unit and of the tile.
  for (int i = int(threadIdx.x); i < tile.kUnits; i += kThreads) {
    float v[kUnit];
    read_unit<kWay>(v, a, p, tile, unit_of<kWay>(i));
    uint32_t most = 0;
    for (int e = 0; e < kUnit; ++e) take_most(most, v[e]);
    tile.most[i] = most;
    whole = whole < most ? most : whole;
  }
  whole = block_reduce(whole, Max{}, 0u, tile.scratch);
  if (threadIdx.x == 0) mark_not_finite(a.not_finite, copy.site, whole);

  // Quantise and store.
  for (int i = int(threadIdx.x); i < tile.kUnits; i += kThreads) {
    const Unit u = unit_of<kWay>(i);
    const int64_t row = p.begin + u.row, column = p.column + u.column;
    if (u.row >= p.height || column >= a.x.dim[1]) continue;
    const int left = p.height - u.row;
    const int count = kWay == FakeWay::kRow || left > kUnit ? kUnit : left;
    const int scaled = copy.format.scale != ScaleKind::kTensor;
    const uint32_t most = scaled ? block_most<kWay>(block, tile, u, whole) : 0;
    const BlockScale scale = block_scale(copy.format, s, most);
    const int64_t element = kWay == FakeWay::kRow ? row * length + column : column * length + row;
    float v[kUnit];
    uint32_t y[kUnit];
    read_unit<kWay>(v, a, p, tile, u);
    encode_unit<kWork>(y, v, copy.format, scale, key, uint64_t(element));
    if (flips_count) {
      const float earlier =
          copy.scales.empty() ? 1.0f : float(copy.scales[scale_at(p, block, kBand, u)]);
      flips +=
          flips_of_unit<kWay>(copy.y, row, column, earlier, y, decode_factor(copy.format, scale),
                              element_grid(copy.format.element), count);
    }
    store_unit<kWay>(copy.y, row, column, y, count, vectors);
    if constexpr (kWork == Work::kMeasures) {
      measure_unit(sums, v, y, count, copy.format, scale, s);
    }
  }

  // Block scales.
  if (kWork != Work::kMeasures && copy.scales.empty()) return;
  if (flips_count) sync_block();
  const BlockCounts counts = finish_blocks<kWay>(a, copy, p, tile, s, whole);

  // Measures of the piece.
  if constexpr (kWork != Work::kMeasures) return;
  const int first = kWay == FakeWay::kRow ? 0 : kFakeMeasures;
  for (int m = 0; m < kFakeFlips; ++m) {
    const double sum = block_sum(sums[m], tile.sums);
    if (threadIdx.x == 0) a.partial.at(p.number, first + m) = sum;
  }
  for (int m = kFakeFlips; m < kFakeMeasures; ++m) {
    const uint32_t value = m == kFakeFlips ? flips : counts.value(m);
    const uint32_t all = block_reduce(value, Merged{m}, 0u, tile.scratch);
    if (threadIdx.x == 0) a.partial.at(p.number, first + m) = double(all);
  }
}

template <typename X>
GPU_DEVICE void clear_partial(const FakeQuantise<X>& a, int64_t number, FakeWay way) {
  static_assert(kFakeMeasures <= kThreads);
  if (a.measures.empty() || threadIdx.x >= unsigned(kFakeMeasures)) return;
  const int first = way == FakeWay::kRow ? 0 : kFakeMeasures;
  a.partial.at(number, first + int(threadIdx.x)) = 0;
}

// Each block owns a tile of a band and reads it once into shared memory. Each thread owns units of
// 16 adjacent elements of a line of a copy and reads them twice: for the amax, then for y. Columns
// are rotated both times, as in quantise. Bound by memory: z and y once.
template <typename X, int kBand, Work kWork>
__global__ __launch_bounds__(kThreads) void fake_quantise_kernel(
    const __grid_constant__ FakeQuantise<X> a, const int vectors) {
  using TileX = Tile<X, kBand>;
  GPU_DYNAMIC_SHARED(TileX, tile);
  const RowRange rows = band_range(a, kBand, blockIdx.x);
  const int64_t columns = a.x.dim[1];
  const Place p{rows.begin, int64_t{blockIdx.y} * kColumns,
                int64_t{blockIdx.x} * gridDim.y + blockIdx.y, int(rows.end - rows.begin)};

  // Absent copies and empty bands.
  if (a.row.y.empty() || p.height == 0) clear_partial(a, p.number, FakeWay::kRow);
  if (a.column.y.empty() || p.height == 0) clear_partial(a, p.number, FakeWay::kColumn);
  if (p.height == 0) {  // unused band: S is still written
    if (!a.row.y.empty()) tensor_scale_of(a, a.row, FakeWay::kRow);
    if (!a.column.y.empty()) tensor_scale_of(a, a.column, FakeWay::kColumn);
    return;
  }

  // Load the tile; zeros outside z.
  for (int i = int(threadIdx.x); i < kBand * kColumns / kVector; i += kThreads) {
    const int r = i / (kColumns / kVector), c = i % (kColumns / kVector) * kVector;
    X* const to = &tile->x[r][c];
    const int inside = r < p.height && p.column + c < columns;
    const X* const from = inside ? row_of(a, p.begin + r) + p.column + c : nullptr;
    if (vectors && inside) {
      constexpr int kAccess = 16 / int(sizeof(X));
      for (int e = 0; e < kVector; e += kAccess)
        store_whole<kAccess>(to + e, load_vec<kAccess>(from + e));
      continue;
    }
    for (int e = 0; e < kVector; ++e) {
      to[e] = inside && p.column + c + e < columns ? from[e] : X(0.0f);
    }
  }
  sync_block();

  // Row copy, then column copy.
  if (!a.row.y.empty()) {
    quantise_copy<kWork, FakeWay::kRow>(a, a.row, p, *tile, vectors);
    sync_block();
  }
  if (!a.column.y.empty()) quantise_copy<kWork, FakeWay::kColumn>(a, a.column, p, *tile, vectors);
}

// Each block owns a tile of a band of 128 rows, each thread 16 rows of a column at a time. Bound by
// memory: z once.
template <typename X>
__global__ __launch_bounds__(kThreads) void fake_amax_kernel(
    const __grid_constant__ FakeQuantise<X> a) {
  GPU_SHARED(uint32_t, scratch, [kWarp]);
  const RowRange rows = band_range(a, kHighBand, blockIdx.x);
  const int64_t c = int64_t{blockIdx.y} * kColumns + threadIdx.x % kColumns;
  const int rotates = a.rotation == ColumnRotation::kHadamard16;
  uint32_t most = 0, rotated = 0;
  const int64_t first = rows.begin + int(threadIdx.x) / kColumns * kUnit;
  for (int64_t r = first; r < rows.end; r += kThreads / kColumns * kUnit) {
    float v[kUnit];
    for (int i = 0; i < kUnit; ++i) {
      v[i] = r + i < rows.end && c < a.x.dim[1] ? float(row_of(a, r + i)[c]) : 0.0f;
    }
    for (int i = 0; i < kUnit; ++i) take_most(most, v[i]);
    if (!rotates) continue;
    if (r + kUnit <= rows.end) hadamard16(v, a.signs);
    for (int i = 0; i < kUnit; ++i) take_most(rotated, v[i]);
  }
  update_amax(a.amax.data, most, scratch);
  if (rotates) update_amax(a.amax.data + 1, rotated, scratch);
}

// Each block merges one measure over the pieces: each thread takes every 256th piece, then the
// block reduces.
template <typename X>
__global__ __launch_bounds__(kThreads) void fake_measures_kernel(
    const __grid_constant__ FakeQuantise<X> a, const int64_t pieces) {
  GPU_SHARED(double, scratch, [kWarp]);
  const int measure = int(blockIdx.x) % kFakeMeasures;
  const Merged merge{measure};
  double all = 0;
  for (int64_t i = threadIdx.x; i < pieces; i += kThreads) {
    all = merge(all, a.partial.at(i, blockIdx.x));
  }
  all = block_reduce(all, merge, 0.0, scratch);
  if (threadIdx.x != 0) return;

  // Tensor scale: measured from S and the amax.
  const int of_row = int(blockIdx.x) < kFakeMeasures;
  const FakeCopy& copy = of_row ? a.row : a.column;
  if (needs_amax(copy) && a.rows() > 0) {
    const float amax = a.amax_of(of_row ? FakeWay::kRow : FakeWay::kColumn);
    const float s = tensor_scale(copy.format, amax);
    all = merge(all, tensor_measure(measure, copy.format, s, amax));
  }
  a.measures[blockIdx.x] = merge(a.measures[blockIdx.x], all);
}

bool draws(const FakeCopy& copy) {
  return !copy.y.empty() && copy.format.rounding == Rounding::kStochastic;
}

template <typename X, int kBand>
void launch_bands(Exec on, const FakeQuantise<X>& a) {
  const auto bands = unsigned(band_count(a, kBand));
  const auto across = unsigned(ceil_div(a.x.dim[1], kColumns));
  const int64_t columns = a.x.dim[1];
  const int vectors = in_vectors(a.x.data, columns) && in_vectors(a.row.y.data, columns);
  const auto start = [&](auto* kernel) {
    launch(on,
           {.name = "fake_quantise",
            .grid = {bands, across},
            .block = {kThreads},
            .shared_bytes = sizeof(Tile<X, kBand>)},
           kernel, a, vectors);
  };
  if (!a.measures.empty()) {
    start(fake_quantise_kernel<X, kBand, Work::kMeasures>);
  } else if (draws(a.row) || draws(a.column)) {
    start(fake_quantise_kernel<X, kBand, Work::kDraws>);
  } else {
    start(fake_quantise_kernel<X, kBand, Work::kNearest>);
  }
  if (a.measures.empty()) return;
  launch(on, {.name = "fake_measures", .grid = {unsigned(2 * kFakeMeasures)}, .block = {kThreads}},
         fake_measures_kernel<X>, a, int64_t{bands} * across);
}

template <typename X>
void launch_fake_quantise(Exec on, const FakeQuantise<X>& a) {
  if (a.finds_amax()) {
    zero(on, a.amax);
    const auto across = unsigned(ceil_div(a.x.dim[1], kColumns));
    launch(on,
           {.name = "fake_amax",
            .grid = {unsigned(band_count(a, kHighBand)), across},
            .block = {kThreads}},
           fake_amax_kernel<X>, a);
  }
  if (band_rows(a) == kHighBand) return launch_bands<X, int(kHighBand)>(on, a);
  launch_bands<X, int(kLowBand)>(on, a);
}

}  // namespace

void fake_quantise(Exec on, const FakeQuantise<float>& a) {
  launch_fake_quantise(on, a);
}
void fake_quantise(Exec on, const FakeQuantise<bf16>& a) {
  launch_fake_quantise(on, a);
}

}  // namespace assay::gpu
