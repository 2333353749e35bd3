// Row addresses of a head, and helpers shared by the CPU bodies of attention.
#pragma once

#include <algorithm>

#include "base/math.h"
#include "base/view.h"
#include "ops/attention/cpu_tile.h"

namespace assay::attention {

// Addresses of a head's rows in qkv, and the tile shapes of head width D.
template <typename T, int D>
struct Geometry {
  using L = LaneOf<T>;
  using Lane = typename L::Lane;
  static constexpr int kSteps = D / L::kPairs;               // steps of a sum over the head width
  static constexpr int kRowSteps = kTile / L::kPairs;        // steps of a sum over queries or keys
  static constexpr int kColumns = std::min(D / kVector, 4);  // vectors of D computed together
  static constexpr int kRows = kSums / kColumns;             // rows of D computed together

  int64_t sequence, heads, kv_heads;

  int64_t stride() const { return (heads + 2 * kv_heads) * D; }
  int64_t kv_of(int64_t head) const { return head / (heads / kv_heads); }
  int64_t q_column(int64_t head) const { return head * D; }
  int64_t k_column(int64_t kv_head) const { return (heads + kv_head) * D; }
  int64_t v_column(int64_t kv_head) const { return (heads + kv_heads + kv_head) * D; }
  int64_t blocks() const { return ceil_div(sequence, kTile); }
  int valid(int64_t begin) const { return int(std::min<int64_t>(kTile, sequence - begin)); }
  Rows<T> rows(View<const T, 2> tensor, int64_t b, int64_t begin, int64_t column) const {
    return {tensor.row(b * sequence + begin) + column, tensor.dim[1], valid(begin)};
  }
};

// Mask of the queries that see `key`, which counts from the first query; the lanes are 16 adjacent
// queries.
inline i32x16 sees(int key) {
  int32_t lanes[kVector];
  for (int i = 0; i < kVector; ++i) lanes[i] = i;
  i32x16 query;
  std::memcpy(&query, lanes, sizeof query);
  return query >= key;
}

// Item i of the query blocks of a head: the longest and the shortest alternate, so that threads
// that take adjacent items get about equal shares.
inline int64_t balanced_block(int64_t i, int64_t blocks) {
  return i % 2 == 0 ? blocks - 1 - i / 2 : i / 2;
}

// Calls f<D>().
template <typename F>
void with_head_dim(int64_t head_dim, F&& f) {
  if (head_dim == 32) return f.template operator()<32>();
  if (head_dim == 64) return f.template operator()<64>();
  f.template operator()<128>();
}

}  // namespace assay::attention
