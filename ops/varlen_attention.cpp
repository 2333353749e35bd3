#include "ops/varlen_attention.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/bf16.h"
#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/attention/cpu_sequence.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

constexpr int kTile = 64;  // keys at a time

int64_t first_query(const AttentionSegment& s) {
  return std::max(s.begin, s.query_begin);
}

// Keys and values of one head, row by row: those of the prefix, then those of the segment.
template <typename T>
struct Rows {
  const T *prefix, *own;
  int64_t prefix_rows, prefix_stride, own_stride;
  const T* operator[](int64_t j) const {
    return j < prefix_rows ? prefix + j * prefix_stride : own + (j - prefix_rows) * own_stride;
  }
};

// One query: softmax over `count` keys, tile by tile, with a running maximum of the scores.
template <typename T, int D>
void attend(const T* q, const Rows<T>& key, const Rows<T>& value, int64_t count, T* out) {
  constexpr int kParts = D / kVector;
  const float scale = kLog2E / std::sqrt(float(D));
  f32x16 query[kParts], sum_v[kParts] = {};
  for (int p = 0; p < kParts; ++p) query[p] = load(q + p * kVector) * scale;
  float top = -INFINITY, sum = 0;
  for (int64_t first = 0; first < count; first += kTile) {
    const int n = int(std::min<int64_t>(kTile, count - first));
    float s[kTile];
    float largest = top;
    for (int j = 0; j < n; ++j) {
      const T* k = key[first + j];
      f32x16 dot = {};
      for (int p = 0; p < kParts; ++p) dot += query[p] * load(k + p * kVector);
      s[j] = horizontal_sum(dot);
      largest = std::max(largest, s[j]);
    }
    const float kept = exp2_fast(top - largest);
    top = largest;
    sum *= kept;
    for (f32x16& v : sum_v) v = v * kept;
    for (int j = 0; j < n; ++j) {
      const float weight = exp2_fast(s[j] - top);
      sum += weight;
      const T* v = value[first + j];
      for (int p = 0; p < kParts; ++p) sum_v[p] += weight * load(v + p * kVector);
    }
  }
  for (int p = 0; p < kParts; ++p) store(out + p * kVector, sum_v[p] * (1 / sum));
}

template <typename T, int D>
void row_by_row(Exec on, const VarlenAttention<T>& a, const AttentionSegment& s) {
  const int64_t group = a.heads / a.kv_heads, prefix_rows = s.prefix_end - s.prefix_begin;
  const int64_t first = first_query(s);
  parallel_for(on, (s.end - first) * a.heads, [&](int64_t item) {
    const int64_t t = first + item / a.heads, h = item % a.heads, kv = h / group;
    const T* own = a.qkv.row(s.begin) + (a.heads + kv) * D;
    const T* before = a.prefix.row(s.prefix_begin) + a.prefix_column + kv * D;
    const Rows<T> key{before, own, prefix_rows, a.prefix.dim[1], a.qkv.dim[1]};
    const Rows<T> value{before + a.kv_heads * D, own + a.kv_heads * D, prefix_rows, a.prefix.dim[1],
                        a.qkv.dim[1]};
    attend<T, D>(a.qkv.row(t) + h * D, key, value, prefix_rows + t - s.begin + 1,
                 a.out.row(t) + h * D);
  });
}

template <typename T>
attention::Text<T> text_of(const VarlenAttention<T>& a, const AttentionSegment& s) {
  return {.own = a.qkv.rows(s.begin, s.end - s.begin),
          .prefix = a.prefix.rows(s.prefix_begin, s.prefix_end - s.prefix_begin),
          .prefix_column = a.prefix_column,
          .out = a.out.rows(s.begin, s.end - s.begin),
          .lse = nullptr,
          .query_begin = first_query(s) - s.begin,
          .heads = a.heads,
          .kv_heads = a.kv_heads,
          .head_dim = a.head_dim};
}

template <typename T>
bool in_tiles(const VarlenAttention<T>& a, const AttentionSegment& s) {
  return a.behind_prefix == BehindPrefix::kTiles || s.prefix_begin == s.prefix_end;
}

// Calls f(text, head, block, cost so far) for the blocks of 64 queries of all segments that are
// computed in tiles. Returns the total cost, in tiles of keys.
template <typename T, typename F>
int64_t for_blocks(const VarlenAttention<T>& a, F&& f) {
  int64_t cost = 0;
  for (int64_t i = 0; i < a.segment.dim[0]; ++i) {
    const AttentionSegment& s = a.segment[i];
    if (first_query(s) >= s.end || !in_tiles(a, s)) continue;
    const attention::Text<T> text = text_of(a, s);
    for (int64_t head = 0; head < a.heads; ++head) {
      for (int64_t block = text.first_block(); block < text.blocks(); ++block) {
        f(text, head, block, cost);
        cost += block + 1;
      }
    }
  }
  return cost;
}

// Gives every thread blocks of about the same total cost, whatever the lengths of the segments are.
template <typename T>
void run_tiles(Exec on, const VarlenAttention<T>& a) {
  const int64_t cost = for_blocks(a, [](const auto&...) {}), threads = on.threads;
  parallel_for(on, threads, [&](int64_t thread) {
    const int64_t begin = cost * thread / threads, end = cost * (thread + 1) / threads;
    for_blocks(a, [&](const attention::Text<T>& text, int64_t head, int64_t block, int64_t before) {
      if (before >= begin && before < end) attention::forward_block(text, head, block);
    });
  });
}

template <typename T>
void run_rows(Exec on, const VarlenAttention<T>& a) {
  const auto run = [&a](Exec inner, const AttentionSegment& s) {
    if (first_query(s) >= s.end || in_tiles(a, s)) return;
    attention::with_head_dim(a.head_dim, [&]<int D>() { row_by_row<T, D>(inner, a, s); });
  };
  // With few segments, the threads share the rows of each; the bits are the same either way.
  if (a.segment.dim[0] < 2 * on.threads) {
    for (int64_t i = 0; i < a.segment.dim[0]; ++i) run(on, a.segment[i]);
    return;
  }
  Exec inner = on;
  inner.threads = 1;
  parallel_for(on, a.segment.dim[0], [&](int64_t i) { run(inner, a.segment[i]); });
}

template <typename T>
void check(Exec on, const VarlenAttention<T>& a) {
  CHECK(a.qkv.dim[1] == (a.heads + 2 * a.kv_heads) * a.head_dim && a.out.dim[0] == a.qkv.dim[0] &&
            a.out.dim[1] == a.heads * a.head_dim,
        "varlen_attention: %s, %ld + 2 x %ld heads of %ld",
        shapes("qkv", a.qkv, "out", a.out).c_str(), long(a.heads), long(a.kv_heads),
        long(a.head_dim));
  if (on.gpu) return;  // segments are on the device
  for (int64_t i = 0; i < a.segment.dim[0]; ++i) {
    const AttentionSegment& s = a.segment[i];
    CHECK(0 <= s.begin && s.begin <= s.end && s.end <= a.qkv.dim[0] && 0 <= s.prefix_begin &&
              s.prefix_begin <= s.prefix_end && s.prefix_end <= a.prefix.dim[0],
          "varlen_attention: segment %ld has rows %ld to %ld of %ld, prefix %ld to %ld of %ld",
          long(i), long(s.begin), long(s.end), long(a.qkv.dim[0]), long(s.prefix_begin),
          long(s.prefix_end), long(a.prefix.dim[0]));
  }
}

}  // namespace

AttentionWork attention_work(View<const AttentionSegment, 1> segment) {
  AttentionWork work;
  std::vector<std::pair<int64_t, int64_t>> prefixes;
  for (int64_t i = 0; i < segment.dim[0]; ++i) {
    const AttentionSegment& s = segment[i];
    const int64_t first = first_query(s), rows = s.end - first;
    if (rows <= 0) continue;
    work.queries += rows;
    work.pairs += double(rows) * double(s.prefix_end - s.prefix_begin + first - s.begin) +
                  double(rows) * double(rows + 1) / 2;
    prefixes.emplace_back(s.prefix_begin, s.prefix_end);
  }
  std::sort(prefixes.begin(), prefixes.end());
  int64_t counted = 0;  // the row after those that are counted
  for (const auto& [begin, end] : prefixes) {
    work.prefix_rows += std::max<int64_t>(0, end - std::max(begin, counted));
    counted = std::max(counted, end);
  }
  return work;
}

template <typename T>
void varlen_attention(Exec on, const VarlenAttention<T>& a) {
  const ProfileScope timed(on, "varlen_attention", varlen_attention_cost(a));
  check(on, a);
  if (on.gpu) return gpu::varlen_attention(on, a);
  run_tiles(on, a);
  if (a.behind_prefix == BehindPrefix::kRowByRow) run_rows(on, a);
}

template void varlen_attention<float>(Exec, const VarlenAttention<float>&);
template void varlen_attention<bf16>(Exec, const VarlenAttention<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(varlen_attention, VarlenAttention<float>)
ASSAY_GPU_ABSENT(varlen_attention, VarlenAttention<bf16>)
}  // namespace gpu

}  // namespace assay
