// How fake_quantise (ops/fake_quantise.h) cuts its work, on every backend: bands of rows that never
// cross a segment, by tiles of columns. Bands are numbered without a table: those of segment s from
// offsets[s] / band + s on; some numbers at its end may be unused. So neither the number of pieces
// nor a launch needs the values of the offsets.
#pragma once

#include <cstdint>

#include "ops/fake_quantise.h"

namespace assay {

constexpr int64_t kFakeColumns = 128;  // of a tile: a multiple of every block
constexpr int64_t kLowBand = 32;  // rows of a band: a multiple of 16, and of every block's rows but
constexpr int64_t kHighBand = 128;  //   where those are 128

struct RowRange {
  int64_t begin, end;
};

// Rows and columns that share a scale. Of kTensor: what has no scale of its own, cut as is
// convenient.
constexpr BlockShape fake_block(ScaleKind kind, FakeWay way) {
  if (kind == ScaleKind::kTensor) return {kLowBand, kFakeColumns};
  const BlockShape shape = block_shape(kind);
  return way == FakeWay::kRow ? shape : BlockShape{shape.columns, shape.lines};
}

// Scales of a tile lie together, block by block, line of blocks by line; tiles as pieces are
// numbered.
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

// The rows of band `number`; none of an unused one.
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

// K of the draws' numbers: element (line, k) has the number line K + k.
template <typename X>
constexpr int64_t draw_length(const FakeQuantise<X>& a, const FakeCopy& copy, FakeWay way) {
  return way == FakeWay::kRow ? a.x.dim[1] : padded_length(copy.format.scale, a.rows());
}

constexpr int needs_amax(const FakeCopy& copy) {
  return !copy.y.empty() && has_tensor_scale(copy.format.scale);
}

}  // namespace assay
