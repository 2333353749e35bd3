// Forward attention of one text on the CPU, 64 queries of a head at a time: the body of
// ops/attention.h and of ops/varlen_attention.h. Positions count from the first row of the text;
// the rows of a prefix, which are stored elsewhere, precede its own rows. Tiles begin at multiples
// of 64 positions for any prefix length, so a row has the same bits however its text is split.
#pragma once

#include <algorithm>

#include "base/bf16.h"
#include "base/math.h"
#include "ops/attention.h"
#include "ops/attention/cpu_geometry.h"
#include "ops/quantise/cpu_amax.h"

namespace assay::attention {

template <typename T>
struct Text {
  View<const T, 2> own;     // in  (rows, (Hq + 2 Hkv) D)
  View<const T, 2> prefix;  // in  (rows, W)   the k heads at prefix_column, then the v heads
  int64_t prefix_column;
  View<T, 2> out;       // out (own rows, Hq D)
  float* lse;           // out (Hq, own rows)   or null
  int64_t query_begin;  // first own row with a query; out of earlier rows is not written
  int64_t heads, kv_heads, head_dim;

  int64_t positions() const { return prefix.dim[0] + own.dim[0]; }
  int64_t first_query() const { return prefix.dim[0] + query_begin; }  // as a position
  int64_t first_block() const { return first_query() / kTile; }
  int64_t blocks() const { return ceil_div(positions(), kTile); }

  int64_t kv_of(int64_t head) const { return head / (heads / kv_heads); }
  // Pointer to the row at `position`; null if there is none.
  const T* query(int64_t position, int64_t head) const {
    if (position < prefix.dim[0] || position >= positions()) return nullptr;
    return own.row(position - prefix.dim[0]) + head * head_dim;
  }
  const T* key(int64_t position, int64_t kv_head) const {
    if (position >= positions()) return nullptr;
    if (position < prefix.dim[0]) return prefix.row(position) + prefix_column + kv_head * head_dim;
    return own.row(position - prefix.dim[0]) + (heads + kv_head) * head_dim;
  }
  const T* value(int64_t position, int64_t kv_head) const {
    return key(position, kv_head + kv_heads);
  }
  // Positions of [q0, q0 + 64) that have a query.
  int64_t begin_of(int64_t q0) const { return std::max(q0, first_query()); }
  int64_t end_of(int64_t q0) const { return std::min(q0 + kTile, positions()); }
  T* out_row(int64_t position, int64_t head) const {
    return out.row(position - prefix.dim[0]) + head * head_dim;
  }
  void keep_lse(int64_t position, int64_t head, float value) const {
    if (lse != nullptr) lse[head * own.dim[0] + position - prefix.dim[0]] = value;
  }
};

// Sequence b of the op.
template <typename T>
Text<T> text_of(const AttentionForward<T>& a, int64_t b) {
  return {.own = a.qkv.rows(b * a.sequence, a.sequence),
          .prefix = {},
          .prefix_column = 0,
          .out = a.out.rows(b * a.sequence, a.sequence),
          .lse = &a.lse.at(b, 0, 0),
          .query_begin = 0,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_dim = a.head_dim};
}
// Raises the op's amax slot to the largest magnitude of a block of the output.
template <typename T>
void raise_amax(const AttentionForward<T>& a, const Text<T>& text, int64_t head, int64_t block) {
  if (a.amax.empty()) return;
  for (int64_t t = block * kTile; t < std::min(block * kTile + kTile, a.sequence); ++t) {
    update_amax(a.amax, text.out_row(t, head), a.head_dim);
  }
}

// Block `block` of 64 positions, in [first_block(), blocks()). Runs on the matrix unit if
// available.
template <typename T>
void forward_block(const Text<T>& text, int64_t head, int64_t block);

}  // namespace assay::attention
