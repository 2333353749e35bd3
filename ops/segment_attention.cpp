#include "ops/segment_attention.h"

#include <algorithm>
#include <cmath>

#include "base/bf16.h"
#include "base/check.h"
#include "base/vector_math.h"
#include "cuda/profile.h"
#include "ops/attention.h"
#include "ops/attention_geometry.h"
#include "ops/gpu_ops.h"

namespace assay {

namespace {

constexpr int kTile = 64;  // keys at a time
constexpr float kLog2E = 1.44269504f;

// Keys and values of one head, row by row: those of the prefix, then those of the segment.
template <typename T>
struct Rows {
  const T *prefix, *own;
  int64_t prefix_rows, prefix_stride, own_stride;
  const T* operator[](int64_t j) const {
    return j < prefix_rows ? prefix + j * prefix_stride : own + (j - prefix_rows) * own_stride;
  }
};

// One query: softmax over `count` keys, a tile at a time, with the largest score so far.
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
void with_prefix(Exec on, const SegmentAttention<T>& a, const AttentionSegment& s) {
  const int64_t group = a.heads / a.kv_heads, prefix_rows = s.prefix_end - s.prefix_begin;
  parallel_for(on, (s.end - s.begin) * a.heads, [&](int64_t item) {
    const int64_t t = item / a.heads, h = item % a.heads, kv = h / group;
    const T* own = a.qkv.row(s.begin) + (a.heads + kv) * D;
    const T* before = a.prefix.row(s.prefix_begin) + a.prefix_column + kv * D;
    const Rows<T> key{before, own, prefix_rows, a.prefix.dim[1], a.qkv.dim[1]};
    const Rows<T> value{before + a.kv_heads * D, own + a.kv_heads * D, prefix_rows, a.prefix.dim[1],
                        a.qkv.dim[1]};
    attend<T, D>(a.qkv.row(s.begin + t) + h * D, key, value, prefix_rows + t + 1,
                 a.out.row(s.begin + t) + h * D);
  });
}

template <typename T>
void run_segment(Exec on, const SegmentAttention<T>& a, const AttentionSegment& s) {
  if (s.prefix_begin < s.prefix_end) {
    return attention::with_head_dim(a.head_dim, [&]<int D>() { with_prefix<T, D>(on, a, s); });
  }
  // The kernel of training, whose products are matrix products.
  const int64_t rows = s.end - s.begin;
  attention_forward<T>(on, {
                               .out = a.out.rows(s.begin, rows),
                               .lse = {a.scratch.data + s.begin * a.heads, {1, a.heads, rows}},
                               .qkv = a.qkv.rows(s.begin, rows),
                               .batch = 1,
                               .sequence = rows,
                               .heads = a.heads,
                               .kv_heads = a.kv_heads,
                               .head_dim = a.head_dim
  });
}

template <typename T>
void check(Exec on, const SegmentAttention<T>& a) {
  CHECK(a.qkv.dim[1] == (a.heads + 2 * a.kv_heads) * a.head_dim && a.out.dim[0] == a.qkv.dim[0] &&
            a.out.dim[1] == a.heads * a.head_dim && a.scratch.size() >= a.qkv.dim[0] * a.heads,
        "segment_attention: qkv (%ld, %ld), out (%ld, %ld), scratch of %ld, %ld + 2 x %ld heads of "
        "%ld",
        long(a.qkv.dim[0]), long(a.qkv.dim[1]), long(a.out.dim[0]), long(a.out.dim[1]),
        long(a.scratch.size()), long(a.heads), long(a.kv_heads), long(a.head_dim));
  if (on.gpu) return;  // the host does not read the segments
  for (int64_t i = 0; i < a.segment.dim[0]; ++i) {
    const AttentionSegment& s = a.segment[i];
    CHECK(0 <= s.begin && s.begin <= s.end && s.end <= a.qkv.dim[0] && 0 <= s.prefix_begin &&
              s.prefix_begin <= s.prefix_end && s.prefix_end <= a.prefix.dim[0],
          "segment_attention: segment %ld has rows %ld to %ld of %ld, prefix %ld to %ld of %ld",
          long(i), long(s.begin), long(s.end), long(a.qkv.dim[0]), long(s.prefix_begin),
          long(s.prefix_end), long(a.prefix.dim[0]));
  }
}

double pairs_of(const AttentionSegment& s) {
  const double rows = double(s.end - s.begin);
  return rows * double(s.prefix_end - s.prefix_begin) + rows * (rows + 1) / 2;
}

}  // namespace

template <typename T>
void segment_attention(Exec on, const SegmentAttention<T>& a) {
  double pairs = 0;
  if (!on.gpu) {
    for (int64_t i = 0; i < a.segment.dim[0]; ++i) pairs += pairs_of(a.segment[i]);
  }
  const Timed timed(on, "segment_attention", segment_attention_cost(a, pairs));
  check(on, a);
  if (on.gpu) return gpu::segment_attention(on, a);
  Exec inner = on;
  inner.profile = nullptr;
  // Few segments share the threads inside; the bits are the same either way.
  if (a.segment.dim[0] < 2 * on.threads) {
    for (int64_t i = 0; i < a.segment.dim[0]; ++i) run_segment(inner, a, a.segment[i]);
    return;
  }
  inner.threads = 1;
  parallel_for(on, a.segment.dim[0], [&](int64_t i) { run_segment(inner, a, a.segment[i]); });
}

template void segment_attention<float>(Exec, const SegmentAttention<float>&);
template void segment_attention<bf16>(Exec, const SegmentAttention<bf16>&);

}  // namespace assay
