// How fake_quantise (ops/fake_quantise.h) partitions its work on every backend: bands of rows that
// never cross a segment, by tiles of columns. Bands are numbered without a table: those of segment
// s start at offsets[s] / band + s; some numbers at its end may be unused. So neither the number of
// pieces nor the launch depends on the values of the offsets.
#pragma once

#include <cstdint>

#include "ops/fake_quantise.h"

namespace assay {

constexpr int64_t kFakeColumns = 128;  // columns of a tile: a multiple of every block
// Rows of a band: a multiple of 16 and of the rows of a block; kHighBand for blocks of 128 rows.
constexpr int64_t kLowBand = 32;
constexpr int64_t kHighBand = 128;

struct RowRange {
  int64_t begin, end;
};

// Rows and columns that share a scale; for kTensor, which has no block scales, an arbitrary cut.
constexpr BlockShape fake_block(ScaleKind kind, FakeWay way) {
  if (kind == ScaleKind::kTensor) return {kLowBand, kFakeColumns};
  const BlockShape shape = block_shape(kind);
  return way == FakeWay::kRow ? shape : BlockShape{shape.columns, shape.lines};
}

// Scales per tile. They are contiguous, one line of blocks after another; tiles are in the order of
// the pieces.
constexpr int64_t blocks_of_tile(const BlockShape& block, int64_t band) {
  return band / block.lines * (kFakeColumns / block.columns);
}

constexpr int64_t band_of(const FakeCopy& copy, FakeWay way) {
  if (copy.y.empty()) return kLowBand;
  return fake_block(copy.format.scale, way).lines > kLowBand ? kHighBand : kLowBand;
}
template <typename X>
constexpr int64_t band_rows(const FakeQuantise<X>& a) {
  const int64_t row = band_of(a.row, FakeWay::kRow), column = band_of(a.column, FakeWay::kColumn);
  return row < column ? column : row;
}

template <typename X>
constexpr int64_t band_count(const FakeQuantise<X>& a, int64_t band) {
  return a.rows() / band + a.segments();
}

// Rows of band `number`; empty if the number is unused.
template <typename X>
constexpr RowRange band_range(const FakeQuantise<X>& a, int64_t band, int64_t number) {
  int64_t low = 0, high = a.segments();
  while (high - low > 1) {
    const int64_t middle = (low + high) / 2;
    (a.offsets[middle] / band + middle <= number ? low : high) = middle;
  }
  const int64_t first = a.offsets.empty() ? 0 : a.offsets[low];
  const int64_t last = a.offsets.empty() ? a.rows() : a.offsets[low + 1];
  const int64_t begin = first + (number - (first / band + low)) * band;
  if (begin >= last) return {last, last};
  return {begin, begin + band < last ? begin + band : last};
}

template <typename X>
constexpr const X* row_of(const FakeQuantise<X>& a, int64_t row) {
  return a.x.row(a.gather.empty() ? row : int64_t{a.gather[row]});
}

// K in the numbering of the draws: element (line, k) has number line K + k.
template <typename X>
constexpr int64_t draw_length(const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  return way == FakeWay::kRow ? a.x.dim[1] : padded_length(copy.format.scale, a.rows());
}

constexpr int needs_amax(const FakeCopy& copy) {
  return !copy.y.empty() && has_tensor_scale(copy.format.scale);
}

}  // namespace assay
