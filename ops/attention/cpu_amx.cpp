#include "ops/attention/cpu_amx.h"

#include "ops/cpu_gemm/amx_tiles.h"

#if ASSAY_AMX

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/math.h"
#include "cuda/exec.h"
#include "ops/attention/cpu_geometry.h"
#include "ops/attention/cpu_softmax.h"
#include "ops/attention/cpu_turn.h"
#include "ops/cpu_gemm/transpose.h"
#include "ops/quantise/cpu_amax.h"

namespace assay::attention {

namespace {

constexpr int kKeySteps = kTile / 2;  // steps of a sum over the queries or keys of a tile

enum class Sums { kFromZero, kContinue };

// c (rows, columns) = or += a (rows, steps) b (steps, columns); strides in words.
struct Tiles {
  float* c;
  int64_t c_stride;
  const uint32_t* a;
  int64_t a_stride;
  const uint32_t* b;
  int64_t b_stride;
};

// If skips: not the first 32 columns.
template <int kRows, int kColumns, int kSteps>
[[gnu::always_inline]] inline void multiply(const Tiles& t, Sums sums, bool skips = false) {
  static_assert(kRows % amx::kBlock == 0 && kColumns % amx::kBlock == 0 &&
                kSteps % amx::kTile == 0);
  for (int i = 0; i < kRows; i += amx::kBlock) {
    for (int j = skips ? amx::kBlock : 0; j < kColumns; j += amx::kBlock) {
      float* c = t.c + i * t.c_stride + j;
      amx::multiply_block({.a = reinterpret_cast<const std::byte*>(t.a + i * t.a_stride),
                           .a_stride = 4 * t.a_stride,
                           .a_tile = 4 * amx::kTile * t.a_stride,
                           .a_chunk = 4 * amx::kTile,
                           .b = reinterpret_cast<const std::byte*>(t.b + j),
                           .b_stride = 4 * t.b_stride,
                           .b_rest = nullptr,
                           .chunks = kSteps / amx::kTile,
                           .start = sums == Sums::kContinue ? c : nullptr,
                           .c = c,
                           .start_stride = 4 * t.c_stride,
                           .c_stride = 4 * t.c_stride},
                          2, 2);
    }
  }
}

// Scores of a tile (keys, queries), without those of a diagonal tile's last 32 keys and first 32
// queries, which see none of them.
template <int kSteps>
[[gnu::always_inline]] inline void multiply_seen(Tiles t, bool diagonal) {
  for (int key = 0; key < kTile; key += amx::kBlock) {
    multiply<amx::kBlock, kTile, kSteps>(t, Sums::kFromZero, diagonal && key > 0);
    t.c += amx::kBlock * t.c_stride;
    t.a += amx::kBlock * t.a_stride;
  }
}

// 32 bf16 to a line.
inline void store_line(uint32_t* to, f32x16 low, f32x16 high) {
  const __m512bh both =
      _mm512_cvtne2ps_pbh(std::bit_cast<__m512>(high), std::bit_cast<__m512>(low));
  _mm512_store_si512(to, std::bit_cast<__m512i>(both));
}

// rows[d][step] = element d of the key pair `step`.
template <int D>
void transpose_pairs(uint32_t (*rows)[kKeySteps], const uint32_t (*pairs)[D]) {
  for (int s = 0; s < kKeySteps; s += amx::kTile) {
    for (int d = 0; d < D; d += amx::kTile) {
      panel::transpose_16(&rows[d][s], kKeySteps, reinterpret_cast<const std::byte*>(&pairs[s][d]),
                          4 * D);
    }
  }
}

// First vector of queries that sees key j of a tile.
int first_vector(bool diagonal, int key) {
  return diagonal ? key / kVector : 0;
}

template <int D>
using Shape = Geometry<bf16, D>;

// Asks for rows [begin, end) of a tensor into the L2 cache; they need not exist. The rows of a head
// are a whole row of all heads apart, which the hardware does not foresee. So while a sequence is
// computed head by head, the next sequence is asked for, row by row.
void prefetch_rows(View<const bf16, 2> tensor, int64_t begin, int64_t end) {
  constexpr int64_t kLine = 64 / sizeof(bf16);
  const bf16* row = tensor.data + begin * tensor.dim[1];
  for (int64_t i = 0; i < (end - begin) * tensor.dim[1]; i += kLine) {
    __builtin_prefetch(row + i, 0, 2);
  }
}
// Bytes of a sequence that may be asked for: two of them stay in the L2 cache.
constexpr int64_t kMostAhead = 768 << 10;

// 64 queries of one head, and one tile of the keys at a time. The weighted sum of v is kept
// transposed: (D, queries).
template <int D>
struct ForwardTile {
  using G = Shape<D>;
  using L = typename G::L;
  const Text<bf16>& text;
  int64_t head, q0;
  alignas(64) uint32_t rows[kTile][G::kSteps];  // of the keys, after load_keys()
  alignas(64) uint32_t q_across[G::kSteps][kTile];
  alignas(64) uint32_t v_pairs[kKeySteps][D];
  alignas(64) uint32_t v_across[D][kKeySteps];
  alignas(64) uint32_t p[kKeySteps][kTile];
  alignas(64) float s[kTile][kTile];     // (keys, queries)
  alignas(64) float out[D][kTile] = {};  // sum of p v
  alignas(64) float shrink[kTile];       // of each query's sums, when its maximum grows

  ForwardTile(const Text<bf16>& of, int64_t h, int64_t first) : text(of), head(h), q0(first) {
    load_rows_at<L, D>(rows, [&](int r) { return text.query(q0 + r, head); });
    transpose_rows<G::kSteps>(q_across, rows);
  }

  [[gnu::always_inline]] void load_keys(int64_t k0) {
    const int64_t kv = text.kv_of(head);
    load_rows_at<L, D>(rows, [&](int r) { return text.value(k0 + r, kv); });
    pair_rows<L, D>(v_pairs, rows);
    transpose_pairs<D>(v_across, v_pairs);
    load_rows_at<L, D>(rows, [&](int r) { return text.key(k0 + r, kv); });
  }

  // s = k q
  [[gnu::always_inline]] void multiply_keys(bool diagonal) {
    multiply_seen<G::kSteps>({.c = s[0],
                              .c_stride = kTile,
                              .a = rows[0],
                              .a_stride = G::kSteps,
                              .b = q_across[0],
                              .b_stride = kTile},
                             diagonal);
  }

  // s = scale s, -infinity where masked, and its maximum.
  [[gnu::always_inline]] void score(OnlineSoftmax& softmax, bool diagonal) {
    const float scale = kLog2E / std::sqrt(float(D));
    for (int j = 0; j < kTile; ++j) {
      const int first = first_vector(diagonal, j);
      for (int v = first; v < kTileVectors; ++v) {
        f32x16 x = load(s[j] + v * kVector) * scale;
        if (diagonal && v == first) x = select(sees(j - v * kVector), x, broadcast(-INFINITY));
        softmax.top[v] = select(softmax.top[v] < x, x, softmax.top[v]);
        store(s[j] + v * kVector, x);
      }
    }
  }

  // p = exp2(s - maximum), and its sum.
  [[gnu::always_inline]] void exponentiate(OnlineSoftmax& softmax, bool diagonal) {
    for (int j = 0; j < kTile; j += 2) {
      const int first = first_vector(diagonal, j);
      for (int v = 0; v < first; ++v) std::memset(p[j / 2] + v * kVector, 0, 4 * kVector);
      for (int v = first; v < kTileVectors; ++v) {
        const f32x16 even = exp2_fast(load(s[j] + v * kVector) - softmax.top[v]);
        const f32x16 odd = exp2_fast(load(s[j + 1] + v * kVector) - softmax.top[v]);
        softmax.sum[v] += even + odd;
        L::store_pair(p[j / 2], kTile, v, even, odd);
      }
    }
  }

  // out = shrink out
  [[gnu::always_inline]] void shrink_values() {
    for (int d = 0; d < D; ++d) {
      for (int v = 0; v < kTileVectors; ++v) {
        store(out[d] + v * kVector, load(out[d] + v * kVector) * load(shrink + v * kVector));
      }
    }
  }

  // out += v p
  [[gnu::always_inline]] void add_values() {
    multiply<D, kTile, kKeySteps>({.c = out[0],
                                   .c_stride = kTile,
                                   .a = v_across[0],
                                   .a_stride = kKeySteps,
                                   .b = p[0],
                                   .b_stride = kTile},
                                  Sums::kContinue);
  }

  // Divides out by the sums, and stores it and lse.
  void store_rows(const OnlineSoftmax& softmax) {
    for (int v = 0; v < kTileVectors; ++v) {
      for (int d = 0; d < D; ++d) {
        store(out[d] + v * kVector, load(out[d] + v * kVector) * (1.0f / softmax.sum[v]));
      }
    }
    const SoftmaxOfQueries queries(softmax);
    const int begin = int(text.begin_of(q0) - q0), end = int(text.end_of(q0) - q0);
    for (int q = begin / amx::kTile * amx::kTile; q < end; q += amx::kTile) {
      const int from = std::max(q, begin), to = std::min<int>(q + amx::kTile, end);
      store_across(q, from, to);
      for (int r = from; r < to; ++r) text.keep_lse(q0 + r, head, queries.lse(r));
    }
  }

  // Stores the rows [from, to) of the 16 queries from q on.
  void store_across(int q, int from, int to) const {
    alignas(64) uint32_t across[amx::kTile][amx::kTile];
    for (int d = 0; d < D; d += amx::kTile) {
      panel::transpose_16(across[0], amx::kTile, reinterpret_cast<const std::byte*>(&out[d][q]),
                          4 * kTile);
      for (int r = from; r < to; ++r) {
        f32x16 x;
        std::memcpy(&x, across[r - q], sizeof x);
        store(text.out_row(q0 + r, head) + d, x);
      }
    }
  }
};

// Asks for a share of the text after this one, as many as it has blocks of heads.
void prefetch_next(const Text<bf16>& text, int64_t head, int64_t block) {
  const int64_t rows = text.own.dim[0], shares = text.heads * text.blocks();
  if (int64_t(text.own.bytes()) > kMostAhead) return;
  const int64_t share = head * text.blocks() + block;
  prefetch_rows(text.own, rows + share * rows / shares, rows + (share + 1) * rows / shares);
}

// 64 queries of one head against all keys that they see.
template <int D>
void queries_forward(const Text<bf16>& text, int64_t h, int64_t q0) {
  prefetch_next(text, h, q0 / kTile);
  ForwardTile<D> tile(text, h, q0);
  OnlineSoftmax softmax;
  for (int64_t k0 = 0; k0 <= q0; k0 += kTile) {
    const bool diagonal = k0 == q0;
    const OnlineSoftmax before = softmax;
    tile.load_keys(k0);
    tile.multiply_keys(diagonal);
    tile.score(softmax, diagonal);
    softmax.rescale(before, tile.shrink);
    tile.exponentiate(softmax, diagonal);
    if (k0 > 0) tile.shrink_values();
    tile.add_values();
  }
  tile.store_rows(softmax);
}

// Tiles of 64 queries of one head, in every layout that backward needs. dq is kept transposed.
template <int D>
struct QueryBlock {
  using G = Shape<D>;
  using L = typename G::L;
  alignas(64) uint32_t q_across[G::kSteps][kTile];
  alignas(64) uint32_t q_pairs[kKeySteps][D];
  alignas(64) uint32_t dout_across[G::kSteps][kTile];
  alignas(64) uint32_t dout_pairs[kKeySteps][D];
  alignas(64) float dq[D][kTile];
  // In base 2; infinite for queries past the end, so that p = 0.
  alignas(64) float lse[kTile];
  alignas(64) float delta[kTile];  // dout . out

  void load_block(const AttentionBackward<bf16>& a, const G& geometry, int64_t b, int64_t h,
                  int64_t q0) {
    alignas(64) uint32_t rows[kTile][G::kSteps];
    load_rows<L, D>(rows, geometry.rows(a.qkv, b, q0, geometry.q_column(h)));
    transpose_rows<G::kSteps>(q_across, rows);
    pair_rows<L, D>(q_pairs, rows);
    const Rows<bf16> dout = geometry.rows(a.dout, b, q0, h * D);
    load_rows<L, D>(rows, dout);
    transpose_rows<G::kSteps>(dout_across, rows);
    pair_rows<L, D>(dout_pairs, rows);
    const Rows<bf16> out = geometry.rows(a.out, b, q0, h * D);
    for (int r = 0; r < kTile; ++r) {
      lse[r] = r < out.count ? a.lse.at(b, h, q0 + r) * kLog2E : INFINITY;
    }
    for (int r = 0; r < kTile; r += kVector) store(delta + r, dots(dout, out, r));
    std::memset(dq, 0, sizeof dq);
  }

  // dout . out of the 16 rows from `first` on, 0 past the end: sixteen horizontal_sum() at once, in
  // its order.
  static f32x16 dots(const Rows<bf16>& dout, const Rows<bf16>& out, int first) {
    f32x16 dot[kVector] = {}, across[kVector];
    for (int r = 0; r < kVector && first + r < out.count; ++r) {
      const int64_t row = first + r;
      for (int d = 0; d < D; d += kVector) {
        dot[r] += load(dout.first + row * dout.stride + d) * load(out.first + row * out.stride + d);
      }
    }
    panel::transpose_16(reinterpret_cast<uint32_t*>(across), kVector,
                        reinterpret_cast<const std::byte*>(dot), sizeof dot[0]);
    for (int width = kVector / 2; width > 0; width /= 2) {
      for (int i = 0; i < width; ++i) across[i] += across[i + width];
    }
    return across[0];
  }
};

// A tile of keys in every layout that backward needs.
template <int D>
struct KeyBlock {
  using G = Shape<D>;
  using L = typename G::L;
  alignas(64) uint32_t k_rows[kTile][G::kSteps];
  alignas(64) uint32_t v_rows[kTile][G::kSteps];
  alignas(64) uint32_t k_across[D][kKeySteps];

  void load_block(const AttentionBackward<bf16>& a, const G& geometry, int64_t b, int64_t kv,
                  int64_t k0) {
    alignas(64) uint32_t k_pairs[kKeySteps][D];
    load_rows<L, D>(k_rows, geometry.rows(a.qkv, b, k0, geometry.k_column(kv)));
    load_rows<L, D>(v_rows, geometry.rows(a.qkv, b, k0, geometry.v_column(kv)));
    pair_rows<L, D>(k_pairs, k_rows);
    transpose_pairs<D>(k_across, k_pairs);
  }
};

// Asks for a share of the sequence after b, as many as it has blocks of heads.
template <int D>
void prefetch_next(const AttentionBackward<bf16>& a, const Shape<D>& geometry, int64_t b,
                   int64_t share) {
  const int64_t bytes = int64_t(a.qkv.bytes() + 2 * a.out.bytes()) / a.batch;
  if (bytes > kMostAhead) return;
  const int64_t shares = a.heads * geometry.blocks(), first = (b + 1) * a.sequence;
  const int64_t begin = first + share * a.sequence / shares;
  const int64_t end = first + (share + 1) * a.sequence / shares;
  prefetch_rows(a.qkv, begin, end);
  prefetch_rows(a.dout, begin, end);
  prefetch_rows(a.out, begin, end);
}

// One tile of keys against a block of queries: p and ds from the scores, then the three products
// that use them.
template <int D>
void backward_tile(QueryBlock<D>& queries, const KeyBlock<D>& keys, bool diagonal, float (*dk)[D],
                   float (*dv)[D]) {
  using G = Shape<D>;
  using L = typename G::L;
  const float scale = kLog2E / std::sqrt(float(D));
  alignas(64) float s[kTile][kTile], dp[kTile][kTile];
  alignas(64) uint32_t p_rows[kTile][kKeySteps], ds_rows[kTile][kKeySteps];
  alignas(64) uint32_t ds_pairs[kKeySteps][kTile];
  Tiles scores{.c = s[0],
               .c_stride = kTile,
               .a = keys.k_rows[0],
               .a_stride = G::kSteps,
               .b = queries.q_across[0],
               .b_stride = kTile};
  multiply_seen<G::kSteps>(scores, diagonal);
  scores.c = dp[0];
  scores.a = keys.v_rows[0];
  scores.b = queries.dout_across[0];
  multiply_seen<G::kSteps>(scores, diagonal);

  for (int j = 0; j < kTile; j += 2) {
    const int first = first_vector(diagonal, j);
    for (int v = 0; v < first / 2 * 2; v += 2) {
      const f32x16 zero = {};
      for (int r = j; r < j + 2; ++r) {
        store_line(p_rows[r] + v * kVector / 2, zero, zero);
        store_line(ds_rows[r] + v * kVector / 2, zero, zero);
      }
      L::store_pair(ds_pairs[j / 2], kTile, v, zero, zero);
      L::store_pair(ds_pairs[j / 2], kTile, v + 1, zero, zero);
    }
    // Whole lines: a tile load of a line that two stores are still writing would wait for both.
    for (int v = first / 2 * 2; v < kTileVectors; v += 2) {
      f32x16 p[2][2] = {}, ds[2][2] = {};
      for (int r = 0; r < 2; ++r) {
        for (int w = 0; w < 2; ++w) {
          const int at = (v + w) * kVector;
          if (v + w < first) continue;
          f32x16 x = exp2_fast(load(s[j + r] + at) * scale - load(queries.lse + at));
          if (diagonal && v + w == first) x = select(sees(j + r - at), x, f32x16{});
          p[r][w] = x;
          ds[r][w] = x * (load(dp[j + r] + at) - load(queries.delta + at));
        }
        store_line(p_rows[j + r] + v * kVector / 2, p[r][0], p[r][1]);
        store_line(ds_rows[j + r] + v * kVector / 2, ds[r][0], ds[r][1]);
      }
      for (int w = 0; w < 2; ++w) {
        L::store_pair(ds_pairs[j / 2], kTile, v + w, ds[0][w], ds[1][w]);
      }
    }
  }

  Tiles of_keys{.c = dv[0],
                .c_stride = D,
                .a = p_rows[0],
                .a_stride = kKeySteps,
                .b = queries.dout_pairs[0],
                .b_stride = D};
  multiply<kTile, D, kKeySteps>(of_keys, Sums::kContinue);
  of_keys.c = dk[0];
  of_keys.a = ds_rows[0];
  of_keys.b = queries.q_pairs[0];
  multiply<kTile, D, kKeySteps>(of_keys, Sums::kContinue);
  multiply<D, kTile, kKeySteps>({.c = queries.dq[0],
                                 .c_stride = kTile,
                                 .a = keys.k_across[0],
                                 .a_stride = kKeySteps,
                                 .b = ds_pairs[0],
                                 .b_stride = kTile},
                                Sums::kContinue);
}

// One key-value head of one sequence. dk and dv of all its keys are summed in scratch, over the
// heads of the group and then over the blocks of queries.
template <int D>
void backward_head(const AttentionBackward<bf16>& a, int64_t b, int64_t kv) {
  using G = Shape<D>;
  const G geometry{a.sequence, a.heads, a.kv_heads};
  const int64_t padded = geometry.blocks() * kTile, group = a.heads / a.kv_heads;
  float* scratch = a.scratch.data + (b * a.kv_heads + kv) * 2 * padded * D;
  std::fill(scratch, scratch + 2 * padded * D, 0.0f);
  const auto dk = reinterpret_cast<float(*)[D]>(scratch), dv = dk + padded;
  const float scale = 1.0f / std::sqrt(float(D));

  QueryBlock<D> queries;
  KeyBlock<D> keys;
  for (int64_t h = kv * group; h < (kv + 1) * group; ++h) {
    for (int64_t q0 = 0; q0 < a.sequence; q0 += kTile) {
      prefetch_next<D>(a, geometry, b, h * geometry.blocks() + q0 / kTile);
      queries.load_block(a, geometry, b, h, q0);
      for (int64_t k0 = 0; k0 <= q0; k0 += kTile) {
        keys.load_block(a, geometry, b, kv, k0);
        backward_tile<D>(queries, keys, k0 == q0, dk + k0, dv + k0);
      }
      alignas(64) float rows[amx::kTile][D];
      for (int q = 0; q < geometry.valid(q0); q += amx::kTile) {
        const int count = std::min<int>(amx::kTile, geometry.valid(q0) - q);
        for (int d = 0; d < D; d += amx::kTile) {
          panel::transpose_16(reinterpret_cast<uint32_t*>(rows[0] + d), D,
                              reinterpret_cast<const std::byte*>(&queries.dq[d][q]), 4 * kTile);
        }
        for (int r = 0; r < count; ++r) {
          const int64_t t = q0 + q + r;
          bf16* dq = a.dqkv.row(b * a.sequence + t) + geometry.q_column(h);
          store_turned<D>(dq, rows[r], scale, a, t);
        }
      }
    }
  }
  for (int64_t t = 0; t < a.sequence; ++t) {
    bf16* row = a.dqkv.row(b * a.sequence + t);
    store_turned<D>(row + geometry.k_column(kv), dk[t], scale, a, t);
    bf16* to = row + geometry.v_column(kv);
    for (int d = 0; d < D; d += kVector) store(to + d, load(dv[t] + d));
    update_amax(a.dv_amax, to, D);
  }
}

}  // namespace

void forward_block_amx(const Text<bf16>& text, int64_t head, int64_t block) {
  const amx::TileUnit unit;
  with_head_dim(text.head_dim, [&]<int D>() { queries_forward<D>(text, head, block * kTile); });
}

void backward_amx(Exec on, const AttentionBackward<bf16>& a) {
  with_head_dim(a.head_dim, [&]<int D>() {
    parallel_for(on, a.batch * a.kv_heads, [&](int64_t item) {
      const amx::TileUnit unit;
      backward_head<D>(a, item / a.kv_heads, item % a.kv_heads);
    });
  });
}

}  // namespace assay::attention

#else

namespace assay::attention {

void forward_block_amx(const Text<bf16>&, int64_t, int64_t) {}
void backward_amx(Exec, const AttentionBackward<bf16>&) {}

}  // namespace assay::attention

#endif
