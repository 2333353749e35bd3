// The kernel that quantises, and the launches. Its tile and its units are in ops/quantise,
// gpu_fake_tile.h and gpu_fake_unit.h; the passes before and after it in gpu_fake_amax.cu and
// gpu_fake_measures.cu.
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/fake_quantise.h"
#include "ops/gpu/amax.h"
#include "ops/gpu/elements.h"
#include "ops/quantise/block_stats.h"
#include "ops/quantise/gpu_fake_amax.h"
#include "ops/quantise/gpu_fake_measures.h"
#include "ops/quantise/gpu_fake_tile.h"
#include "ops/quantise/gpu_fake_unit.h"
#include "ops/quantise/partition.h"
#include "ops/quantise/round_to_format.h"
#include "ops/quantise/scale.h"

namespace assay::gpu {

namespace {

using namespace fake;

// Tensor scale S. One thread of the grid stores 1 / S and S.
template <typename X>
GPU_DEVICE float tensor_scale_of(const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  if (!has_tensor_scale(copy.format.scale)) return 1.0f;
  const float s = tensor_scale(copy.format, a.amax_of(way));
  if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x == 0) {
    copy.tensor_scale[0] = s == s ? 1.0f / s : kScaleNaN;
    copy.tensor_scale[1] = s;
  }
  return s;
}

// Runs once per block of the copy: stores its scale and, on sampled steps, counts it. If flips are
// counted, call it after sync_block(): until then the stored scales are those of the earlier copy.
template <FakeWay kWay, typename X, int kBand>
GPU_DEVICE BlockCounts finish_blocks(const FakeQuantise<X>& a, const FakeCopy& copy, const Piece& p,
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
GPU_DEVICE void quantise_copy(const FakeQuantise<X>& a, const FakeCopy& copy, const Piece& p,
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
  const Piece p{rows.begin, int64_t{blockIdx.y} * kColumns,
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
  if (!a.measures.empty()) merge_measures(on, a, int64_t{bands} * across);
}

template <typename X>
void launch_fake_quantise(Exec on, const FakeQuantise<X>& a) {
  if (a.finds_amax()) find_amax(on, a);
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
