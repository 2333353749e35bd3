#include <cmath>

#include "base/check.h"
#include "base/math.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/varlen_attention.h"

namespace assay::gpu {

namespace {

constexpr int kWarps = 4;

// Each block owns one head of a segment, each warp every fourth of its rows. Scores: one key per
// lane, 32 keys at a time. Output: each lane sums every 32nd element of the head. For short
// segments with long prefixes, where it is bound by reading keys and values once per row, mostly
// from L2; attention_forward is faster for a long segment without a prefix.
// With a minimum number of blocks per SM, ptxas keeps the keys in flight in registers; without one
// it spills them for occupancy.
template <typename T, int D>
__global__ __launch_bounds__(kWarps* kWarp, 4) void varlen_attention_kernel(
    const __grid_constant__ VarlenAttention<T> a) {
  constexpr int kElements = D / kWarp;
  GPU_SHARED(float, queries, [kWarps * D]);
  const AttentionSegment s = a.segment[blockIdx.x];
  const int64_t h = blockIdx.y, kv = h / (a.heads / a.kv_heads);
  const int64_t before = s.prefix_end - s.prefix_begin, values = a.kv_heads * D;
  const T* const own = a.qkv.row(s.begin) + (a.heads + kv) * D;
  const T* const prefix =
      before > 0 ? a.prefix.row(s.prefix_begin) + a.prefix_column + kv * D : nullptr;
  const auto key = [&](int64_t j) {
    return j < before ? prefix + j * a.prefix.dim[1] : own + (j - before) * a.qkv.dim[1];
  };
  float* const q = queries + warp() * D;
  const float scale = kLog2E * reciprocal_sqrt(float(D));
  const int64_t first_query = s.query_begin > s.begin ? s.query_begin : s.begin;
  for (int64_t t = first_query + warp(); t < s.end; t += kWarps) {
    for (int e = 0; e < kElements; ++e) {
      const int d = lane() + e * kWarp;
      q[d] = float(a.qkv.row(t)[h * D + d]) * scale;
    }
    sync_warp();
    const int64_t count = before + (t - s.begin) + 1;
    float top = -INFINITY, sum = 0, sum_v[kElements] = {};
    for (int64_t first = 0; first < count; first += kWarp) {
      float score = -INFINITY;
      if (first + lane() < count) {
        const T* const k = key(first + lane());
        score = 0;
        for (int d = 0; d < D; d += kVector) {
          float x[kVector];
          load_floats(x, k + d);
          for (int e = 0; e < kVector; ++e) score += q[d + e] * x[e];
        }
      }
      const float largest = Max{}(top, warp_max(score));
      const float kept = exp2_approx(top - largest), weight = exp2_approx(score - largest);
      top = largest;
      sum = sum * kept + warp_sum(weight);
      for (int e = 0; e < kElements; ++e) sum_v[e] *= kept;
      const int keys = int(count - first < kWarp ? count - first : kWarp);
      for (int j = 0; j < keys; ++j) {
        const float w = shuffle(weight, j);
        const T* const v = key(first + j) + values;
        for (int e = 0; e < kElements; ++e) sum_v[e] += w * float(v[lane() + e * kWarp]);
      }
    }
    const float inverse = 1 / sum;
    for (int e = 0; e < kElements; ++e) {
      round_to(a.out.row(t)[h * D + lane() + e * kWarp], sum_v[e] * inverse);
    }
    sync_warp();
  }
}

template <typename T>
void launch_segments(Exec on, const VarlenAttention<T>& a) {
  if (a.segment.dim[0] == 0 || a.qkv.dim[0] == 0) return;
  CHECK(a.heads <= 65535 && in_vectors(a.qkv.data, a.head_dim) &&
            (a.prefix.empty() || in_vectors(a.prefix.data, a.head_dim)) &&
            a.prefix.dim[1] % kVector == 0 && a.prefix_column % kVector == 0,
        "varlen_attention: %ld heads, prefix rows of width %ld, keys from column %ld",
        long(a.heads), long(a.prefix.dim[1]), long(a.prefix_column));
  const auto kernel = a.head_dim == 32   ? varlen_attention_kernel<T, 32>
                      : a.head_dim == 64 ? varlen_attention_kernel<T, 64>
                                         : varlen_attention_kernel<T, 128>;
  launch(on,
         {.name = "varlen_attention",
          .grid = {unsigned(a.segment.dim[0]), unsigned(a.heads)},
          .block = {kWarps * kWarp}},
         kernel, a);
}

}  // namespace

void varlen_attention(Exec on, const VarlenAttention<float>& a) {
  launch_segments(on, a);
}
void varlen_attention(Exec on, const VarlenAttention<bf16>& a) {
  launch_segments(on, a);
}

}  // namespace assay::gpu
