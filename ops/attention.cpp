#include "ops/attention.h"

#include <algorithm>
#include <cmath>

#include "base/bf16.h"
#include "base/check.h"
#include "base/math.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/attention/cpu_amx.h"
#include "ops/attention/cpu_geometry.h"
#include "ops/attention/cpu_sequence.h"
#include "ops/attention/cpu_softmax.h"
#include "ops/attention/cpu_tile.h"
#include "ops/attention/cpu_turn.h"
#include "ops/attention/gpu_backward_wgmma.h"
#include "ops/attention/gpu_forward_wgmma.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_amax.h"

namespace assay {

namespace {

using attention::accumulate;
using attention::kBackwardKeys;
using attention::kForwardKeys;
using attention::kSums;
using attention::kTile;
using attention::kTileVectors;
using attention::Rows;

using attention::Geometry;
using attention::OnlineSoftmax;
using attention::sees;

// Calls f<V0>(key) for each group of keys; V0 is the first vector of queries that sees the group.
// On the diagonal the first key / 16 vectors see none of its keys.
template <int Keys, typename F>
[[gnu::always_inline]] inline void for_key_groups(bool diagonal, F&& f) {
  const auto range = [&]<int V0>(int begin, int end) {
    for (int j = begin; j < end; j += Keys) f.template operator()<V0>(j);
  };
  if (!diagonal) return range.template operator()<0>(0, kTile);
  range.template operator()<0>(0, 16);
  range.template operator()<1>(16, 32);
  range.template operator()<2>(32, 48);
  range.template operator()<3>(48, 64);
}

// For the rows of a tile and D columns: out[r][d] = factor(r) * out[r][d] + sum over steps(r) of
// a[r, step] * b[step, d].
template <typename G, int D, int RowStride, int StepStride, typename Factor, typename Steps>
[[gnu::always_inline]] inline void add_product(float (*out)[D], const typename G::Lane* a,
                                               const typename G::Lane (*b)[D], Factor&& factor,
                                               Steps&& steps) {
  for (int r0 = 0; r0 < kTile; r0 += G::kRows) {
    const auto [begin, end] = steps(r0);
    for (int c0 = 0; c0 < D; c0 += G::kColumns * kVector) {
      f32x16 acc[G::kRows][G::kColumns];
#pragma GCC unroll 16
      for (int r = 0; r < G::kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < G::kColumns; ++v) {
          acc[r][v] = factor(r0 + r) * load(out[r0 + r] + c0 + v * kVector);
        }
      }
      accumulate<typename G::L, G::kRows, G::kColumns, RowStride, StepStride, D>(
          acc, a + r0 * RowStride, b[0] + c0, begin, end);
#pragma GCC unroll 16
      for (int r = 0; r < G::kRows; ++r) {
#pragma GCC unroll 8
        for (int v = 0; v < G::kColumns; ++v) store(out[r0 + r] + c0 + v * kVector, acc[r][v]);
      }
    }
  }
}

struct StepRange {
  int begin, end;
};

// 64 queries of one head, and one tile of the keys at a time.
template <typename T, int D>
struct ForwardTile {
  using G = Geometry<T, D>;
  using L = typename G::L;
  using Lane = typename G::Lane;
  const attention::Text<T>& text;
  int64_t head, q0;
  alignas(64) Lane rows[kTile][G::kSteps];  // of the keys, after load_keys()
  alignas(64) Lane q_across[G::kSteps][kTile];
  alignas(64) Lane v_pairs[G::kRowSteps][D];
  alignas(64) Lane p[G::kRowSteps][kTile];
  alignas(64) float s[kTile][kTile];     // (keys, queries)
  alignas(64) float out[kTile][D] = {};  // sum of p v
  alignas(64) float shrink[kTile];       // of each query's sums, when its maximum grows

  ForwardTile(const attention::Text<T>& of, int64_t h, int64_t first)
      : text(of), head(h), q0(first) {
    attention::load_rows_at<L, D>(rows, [&](int r) { return text.query(q0 + r, head); });
    attention::transpose_rows<G::kSteps>(q_across, rows);
  }

  [[gnu::always_inline]] void load_keys(int64_t k0) {
    const int64_t kv = text.kv_of(head);
    attention::load_rows_at<L, D>(rows, [&](int r) { return text.value(k0 + r, kv); });
    attention::pair_rows<L, D>(v_pairs, rows);
    attention::load_rows_at<L, D>(rows, [&](int r) { return text.key(k0 + r, kv); });
  }

  // s = scale k q, -infinity where masked, and its maximum.
  [[gnu::always_inline]] void score(OnlineSoftmax& softmax, bool diagonal) {
    const float scale = kLog2E / std::sqrt(float(D));
    for_key_groups<kForwardKeys>(diagonal, [&]<int V0>(int j) {
      f32x16 acc[kForwardKeys][kTileVectors - V0] = {};
      accumulate<L, kForwardKeys, kTileVectors - V0, G::kSteps, 1, kTile>(
          acc, rows[j], q_across[0] + V0 * kVector, 0, G::kSteps);
#pragma GCC unroll 4
      for (int r = 0; r < kForwardKeys; ++r) {
#pragma GCC unroll 4
        for (int v = V0; v < kTileVectors; ++v) {
          f32x16 x = acc[r][v - V0] * scale;
          if (diagonal && v == V0) x = select(sees(j + r - V0 * kVector), x, broadcast(-INFINITY));
          softmax.top[v] = select(softmax.top[v] < x, x, softmax.top[v]);
          store(s[j + r] + v * kVector, x);
        }
      }
    });
  }

  // p = exp2(s - maximum), and its sum.
  [[gnu::always_inline]] void exponentiate(OnlineSoftmax& softmax, bool diagonal) {
    for_key_groups<kForwardKeys>(diagonal, [&]<int V0>(int j) {
#pragma GCC unroll 4
      for (int r = 0; r < kForwardKeys; r += 2) {
#pragma GCC unroll 4
        for (int v = V0; v < kTileVectors; ++v) {
          const f32x16 even = exp2_fast(load(s[j + r] + v * kVector) - softmax.top[v]);
          const f32x16 odd = exp2_fast(load(s[j + r + 1] + v * kVector) - softmax.top[v]);
          softmax.sum[v] += even + odd;
          L::store_pair(p[(j + r) / L::kPairs], kTile, v, even, odd);
        }
      }
    });
  }

  // out = shrink out + p v.
  [[gnu::always_inline]] void add_values(bool diagonal) {
    add_product<G, D, 1, kTile>(
        out, p[0], v_pairs, [&](int r) { return shrink[r]; },
        [&](int r) {
          return StepRange{0, diagonal ? (r / kVector + 1) * kVector / L::kPairs : G::kRowSteps};
        });
  }

  void store_rows(const OnlineSoftmax& softmax) const {
    const attention::SoftmaxOfQueries queries(softmax);
    for (int64_t position = text.begin_of(q0); position < text.end_of(q0); ++position) {
      const int64_t r = position - q0;
      T* to = text.out_row(position, head);
      const float inverse = 1.0f / queries.sum[r];
      for (int d = 0; d < D; d += kVector) store(to + d, load(out[r] + d) * inverse);
      text.keep_lse(position, head, queries.lse(r));
    }
  }
};

// 64 queries of one head against all keys that they see, tile by tile: scores (keys by queries),
// their maximum, the probabilities, and the weighted sum of v, rescaled when the maximum grows.
template <typename T, int D>
void queries_forward(const attention::Text<T>& text, int64_t h, int64_t q0) {
  ForwardTile<T, D> tile(text, h, q0);
  OnlineSoftmax softmax;
  for (int64_t k0 = 0; k0 <= q0; k0 += kTile) {
    const bool diagonal = k0 == q0;
    const OnlineSoftmax before = softmax;
    tile.load_keys(k0);
    tile.score(softmax, diagonal);
    softmax.rescale(before, tile.shrink);
    tile.exponentiate(softmax, diagonal);
    tile.add_values(diagonal);
  }
  tile.store_rows(softmax);
}

// 64 queries of one head, in every layout that backward needs.
template <typename T, int D>
struct QueryBlock {
  using G = Geometry<T, D>;
  using L = typename G::L;
  using Lane = typename G::Lane;
  alignas(64) Lane q_across[G::kSteps][kTile];
  alignas(64) Lane q_pairs[G::kRowSteps][D];
  alignas(64) Lane dout_across[G::kSteps][kTile];
  alignas(64) Lane dout_pairs[G::kRowSteps][D];
  alignas(64) float dq[kTile][D];
  // To the base 2; infinite for queries past the end, so that p = 0.
  alignas(64) float lse[kTile];
  alignas(64) float delta[kTile];  // dout . out

  void load_block(const AttentionBackward<T>& a, const G& geometry, int64_t b, int64_t h,
                  int64_t q0) {
    alignas(64) Lane rows[kTile][G::kSteps];
    attention::load_rows<L, D>(rows, geometry.rows(a.qkv, b, q0, geometry.q_column(h)));
    attention::transpose_rows<G::kSteps>(q_across, rows);
    attention::pair_rows<L, D>(q_pairs, rows);
    const Rows<T> dout = geometry.rows(a.dout, b, q0, h * D);
    attention::load_rows<L, D>(rows, dout);
    attention::transpose_rows<G::kSteps>(dout_across, rows);
    attention::pair_rows<L, D>(dout_pairs, rows);
    const Rows<T> out = geometry.rows(a.out, b, q0, h * D);
    for (int r = 0; r < kTile; ++r) {
      lse[r] = r < out.count ? a.lse.at(b, h, q0 + r) * kLog2E : INFINITY;
      delta[r] = 0;
      if (r >= out.count) continue;
      f32x16 dot = {};
      for (int d = 0; d < D; d += kVector) {
        dot += load(dout.first + r * dout.stride + d) * load(out.first + r * out.stride + d);
      }
      delta[r] = horizontal_sum(dot);
    }
    std::memset(dq, 0, sizeof dq);
  }
};

// One tile of keys against a block of queries: p and ds from the scores, then dv, dk and dq.
template <typename T, int D>
void backward_tile(const AttentionBackward<T>& a, QueryBlock<T, D>& block, int64_t b, int64_t kv,
                   int64_t q0, int64_t k0, float (*dk)[D], float (*dv)[D]) {
  using G = Geometry<T, D>;
  using L = typename G::L;
  using Lane = typename G::Lane;
  const G geometry{a.sequence, a.heads, a.kv_heads};
  const bool diagonal = k0 == q0;
  const float scale = kLog2E / std::sqrt(float(D));
  alignas(64) Lane k_rows[kTile][G::kSteps], v_rows[kTile][G::kSteps];
  alignas(64) Lane k_pairs[G::kRowSteps][D];
  alignas(64) Lane p_rows[kTile][G::kRowSteps], ds_rows[kTile][G::kRowSteps];
  alignas(64) Lane ds_pairs[G::kRowSteps][kTile];
  attention::load_rows<L, D>(k_rows, geometry.rows(a.qkv, b, k0, geometry.k_column(kv)));
  attention::load_rows<L, D>(v_rows, geometry.rows(a.qkv, b, k0, geometry.v_column(kv)));
  attention::pair_rows<L, D>(k_pairs, k_rows);

  for_key_groups<kBackwardKeys>(diagonal, [&]<int V0>(int j) {
    constexpr int kVectors = kTileVectors - V0;
    f32x16 p[kBackwardKeys][kVectors] = {}, ds[kBackwardKeys][kVectors] = {};
    accumulate<L, kBackwardKeys, kVectors, G::kSteps, 1, kTile>(
        p, k_rows[j], block.q_across[0] + V0 * kVector, 0, G::kSteps);
#pragma GCC unroll 4
    for (int r = 0; r < kBackwardKeys; ++r) {
#pragma GCC unroll 4
      for (int v = V0; v < kTileVectors; ++v) {
        f32x16& x = p[r][v - V0];
        x = exp2_fast(x * scale - load(block.lse + v * kVector));
        if (diagonal && v == V0) x = select(sees(j + r - V0 * kVector), x, f32x16{});
        L::store_row(p_rows[j + r], v, x);
      }
    }
    accumulate<L, kBackwardKeys, kVectors, G::kSteps, 1, kTile>(
        ds, v_rows[j], block.dout_across[0] + V0 * kVector, 0, G::kSteps);
#pragma GCC unroll 4
    for (int r = 0; r < kBackwardKeys; ++r) {
#pragma GCC unroll 4
      for (int v = V0; v < kTileVectors; ++v) {
        f32x16& x = ds[r][v - V0];
        x = p[r][v - V0] * (x - load(block.delta + v * kVector));
        L::store_row(ds_rows[j + r], v, x);
        if (r % 2 == 1)
          L::store_pair(ds_pairs[(j + r - 1) / L::kPairs], kTile, v, ds[r - 1][v - V0], x);
      }
    }
  });

  const auto one = [](int) { return 1.0f; };
  const auto queries_from = [&](int key) {  // the queries that see a key of this group of 16
    return StepRange{diagonal ? key / kVector * kVector / L::kPairs : 0, G::kRowSteps};
  };
  const auto keys_up_to = [&](int query) {
    return StepRange{0, diagonal ? (query / kVector + 1) * kVector / L::kPairs : G::kRowSteps};
  };
  add_product<G, D, G::kRowSteps, 1>(dv, p_rows[0], block.dout_pairs, one, queries_from);
  add_product<G, D, G::kRowSteps, 1>(dk, ds_rows[0], block.q_pairs, one, queries_from);
  add_product<G, D, 1, kTile>(block.dq, ds_pairs[0], k_pairs, one, keys_up_to);
}

// One key-value head of one sequence. dk and dv of all its keys are summed in scratch, over the
// heads of the group and over the blocks of queries, in that order.
template <typename T, int D>
void backward_head(const AttentionBackward<T>& a, int64_t b, int64_t kv) {
  using G = Geometry<T, D>;
  const G geometry{a.sequence, a.heads, a.kv_heads};
  const int64_t padded = geometry.blocks() * kTile, group = a.heads / a.kv_heads;
  float* scratch = a.scratch.data + (b * a.kv_heads + kv) * 2 * padded * D;
  std::fill(scratch, scratch + 2 * padded * D, 0.0f);
  const auto dk = reinterpret_cast<float(*)[D]>(scratch), dv = dk + padded;
  const float scale = 1.0f / std::sqrt(float(D));

  QueryBlock<T, D> block;
  for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    for (int64_t q0 = 0; q0 < a.sequence; q0 += kTile) {
      block.load_block(a, geometry, b, h, q0);
      for (int64_t k0 = 0; k0 <= q0; k0 += kTile) {
        backward_tile<T, D>(a, block, b, kv, q0, k0, dk + k0, dv + k0);
      }
      for (int r = 0; r < geometry.valid(q0); ++r) {
        T* dq = a.dqkv.row(b * a.sequence + q0 + r) + geometry.q_column(h);
        attention::store_turned<D>(dq, block.dq[r], scale, a, q0 + r);
      }
    }
  }
  for (int64_t t = 0; t < a.sequence; ++t) {
    T* row = a.dqkv.row(b * a.sequence + t);
    attention::store_turned<D>(row + geometry.k_column(kv), dk[t], scale, a, t);
    T* to = row + geometry.v_column(kv);
    for (int d = 0; d < D; d += kVector) store(to + d, load(dv[t] + d));
    update_amax(a.dv_amax, to, D);
  }
}

void check_shape(const char* op, const AttentionShape& s, int64_t rows, int64_t columns) {
  CHECK(s.head_dim == 32 || s.head_dim == 64 || s.head_dim == 128,
        "%s: head width %ld, must be 32, 64 or 128", op, long(s.head_dim));
  CHECK(s.kv_heads > 0 && s.heads % s.kv_heads == 0, "%s: %ld heads over %ld key-value heads", op,
        long(s.heads), long(s.kv_heads));
  CHECK(rows == s.batch * s.sequence && columns == (s.heads + 2 * s.kv_heads) * s.head_dim,
        "%s: qkv (%ld, %ld) for %ld sequences of %ld, %ld + 2 x %ld heads of %ld", op, long(rows),
        long(columns), long(s.batch), long(s.sequence), long(s.heads), long(s.kv_heads),
        long(s.head_dim));
}

}  // namespace

namespace attention {

template <typename T>
void forward_block(const Text<T>& text, int64_t head, int64_t block) {
  if constexpr (std::is_same_v<T, bf16>) {
    if (panel::has_amx()) return forward_block_amx(text, head, block);
  }
  with_head_dim(text.head_dim, [&]<int D>() { queries_forward<T, D>(text, head, block * kTile); });
}

template void forward_block<float>(const Text<float>&, int64_t, int64_t);
template void forward_block<bf16>(const Text<bf16>&, int64_t, int64_t);

}  // namespace attention

int64_t attention_backward_scratch(Backend backend, const AttentionShape& s) {
  const int64_t padded = round_up(s.sequence, kTile);
  if (backend == Backend::kGpu) return s.batch * s.heads * 2 * padded;
  return s.batch * s.kv_heads * 2 * padded * s.head_dim;
}

template <typename T>
void attention_forward(Exec on, const AttentionForward<T>& a) {
  const ProfileScope timed(on, "attention_forward", attention_forward_cost(a));
  check_shape("attention_forward", {a.batch, a.sequence, a.heads, a.kv_heads, a.head_dim},
              a.qkv.dim[0], a.qkv.dim[1]);
  CHECK(a.out.dim[0] == a.qkv.dim[0] && a.out.dim[1] == a.heads * a.head_dim &&
            a.lse.size() == a.batch * a.heads * a.sequence,
        "attention_forward: %s", shapes("out", a.out, "lse", a.lse).c_str());
  const int64_t blocks = ceil_div(a.sequence, kTile);
  if (on.gpu) return gpu::attention_forward(on, a);
  if constexpr (std::is_same_v<T, bf16>) {
    if (panel::has_amx()) return attention::forward_amx(on, a);
  }
  parallel_for(on, a.batch * a.heads * blocks, [&](int64_t item) {
    const int64_t head = item / blocks, h = head % a.heads;
    const int64_t block = attention::balanced_block(item % blocks, blocks);
    const attention::Text<T> text = attention::text_of(a, head / a.heads);
    attention::forward_block(text, h, block);
    attention::raise_amax(a, text, h, block);
  });
}

template <typename T>
void attention_backward(Exec on, const AttentionBackward<T>& a) {
  const ProfileScope timed(on, "attention_backward", attention_backward_cost(a));
  const AttentionShape shape{a.batch, a.sequence, a.heads, a.kv_heads, a.head_dim};
  check_shape("attention_backward", shape, a.qkv.dim[0], a.qkv.dim[1]);
  CHECK(a.dqkv.size() == a.qkv.size() && a.out.dim[0] == a.qkv.dim[0] &&
            a.out.dim[1] == a.heads * a.head_dim && a.dout.size() == a.out.size() &&
            a.lse.size() == a.batch * a.heads * a.sequence,
        "attention_backward: %s",
        shapes("dqkv", a.dqkv, "out", a.out, "dout", a.dout, "lse", a.lse).c_str());
  CHECK(a.cos.empty() ? a.sin.empty()
                      : a.cos.dim[0] >= a.sequence && a.sin.dim[0] >= a.sequence &&
                            a.cos.dim[1] == a.head_dim / 2 && a.sin.dim[1] == a.head_dim / 2,
        "attention_backward: %s for %ld positions of width %ld",
        shapes("cos", a.cos, "sin", a.sin).c_str(), long(a.sequence), long(a.head_dim));
  const Backend backend = on.gpu ? Backend::kGpu : Backend::kCpu;
  CHECK(a.scratch.size() >= attention_backward_scratch(backend, shape),
        "attention_backward: scratch of %ld floats, %ld needed", long(a.scratch.size()),
        long(attention_backward_scratch(backend, shape)));
  if (on.gpu) return gpu::attention_backward(on, a);
  if constexpr (std::is_same_v<T, bf16>) {
    if (panel::has_amx()) return attention::backward_amx(on, a);
  }
  attention::with_head_dim(a.head_dim, [&]<int D>() {
    parallel_for(on, a.batch * a.kv_heads, [&](int64_t item) {
      backward_head<T, D>(a, item / a.kv_heads, item % a.kv_heads);
    });
  });
}

template void attention_forward<float>(Exec, const AttentionForward<float>&);
template void attention_forward<bf16>(Exec, const AttentionForward<bf16>&);
template void attention_backward<float>(Exec, const AttentionBackward<float>&);
template void attention_backward<bf16>(Exec, const AttentionBackward<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(attention_forward, AttentionForward<float>)
ASSAY_GPU_ABSENT(attention_forward, AttentionForward<bf16>)
ASSAY_GPU_ABSENT(attention_backward, AttentionBackward<float>)
ASSAY_GPU_ABSENT(attention_backward, AttentionBackward<bf16>)
ASSAY_GPU_ABSENT(attention_forward_wgmma, AttentionForward<bf16>)
ASSAY_GPU_ABSENT(attention_backward_wgmma, AttentionBackward<bf16>)
}  // namespace gpu

}  // namespace assay
