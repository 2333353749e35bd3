// Backward attention on the CPU matrix unit.
#include "ops/attention/cpu_amx.h"
#include "ops/attention/cpu_amx_tiles.h"

#if ASSAY_AMX

#include <algorithm>
#include <cmath>

#include "base/math.h"
#include "cuda/exec.h"
#include "ops/attention/cpu_turn.h"
#include "ops/quantise/cpu_amax.h"

namespace assay::attention {

namespace {

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
    amx::stay_awake();
    transpose_rows<G::kSteps>(q_across, rows);
    pair_rows<L, D>(q_pairs, rows);
    amx::stay_awake();
    const Rows<bf16> dout = geometry.rows(a.dout, b, q0, h * D);
    load_rows<L, D>(rows, dout);
    amx::stay_awake();
    transpose_rows<G::kSteps>(dout_across, rows);
    pair_rows<L, D>(dout_pairs, rows);
    amx::stay_awake();
    const Rows<bf16> out = geometry.rows(a.out, b, q0, h * D);
    const float* natural = &a.lse.at(b, h, q0);
    for (int r = 0; r < out.count; ++r) lse[r] = natural[r] * kLog2E;
    std::fill(lse + out.count, lse + kTile, INFINITY);
    for (int r = 0; r < kTile; r += kVector) {
      store(delta + r, dots(dout, out, r));
      amx::stay_awake();
    }
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
    amx::stay_awake();
    pair_rows<L, D>(k_pairs, k_rows);
    transpose_pairs<D>(k_across, k_pairs);
  }
};

// Of q, k, v, dout and out, and of dq, dk and dv.
template <int D>
using NextRows = LinesAhead<D, 5, 3>;

// The rows of the head after h of sequence b, in the next sequence if it is the last one.
template <int D>
NextRows<D> rows_after(const AttentionBackward<bf16>& a, int64_t b, int64_t h) {
  const Shape<D> geometry{a.sequence, a.heads, a.kv_heads};
  const bool wraps = h + 1 == a.heads;
  const int64_t next = wraps ? 0 : h + 1, kv = geometry.kv_of(next);
  const int64_t row = (wraps ? b + 1 : b) * a.sequence;
  const int64_t wide = a.qkv.dim[1], narrow = a.out.dim[1];
  const bf16* qkv = a.qkv.data + row * wide;
  const bf16* dqkv = a.dqkv.data + row * wide;
  const int64_t own = row * narrow + next * D;
  return {{{qkv + geometry.q_column(next), wide},
           {qkv + geometry.k_column(kv), wide},
           {qkv + geometry.v_column(kv), wide},
           {a.dout.data + own, narrow},
           {a.out.data + own, narrow},
           {dqkv + geometry.q_column(next), wide},
           {dqkv + geometry.k_column(kv), wide},
           {dqkv + geometry.v_column(kv), wide}},
          a.sequence};
}

// What the products of a tile need of its scores.
struct TileGradients {
  alignas(64) uint32_t p_rows[kTile][kKeySteps];
  alignas(64) uint32_t ds_rows[kTile][kKeySteps];
  alignas(64) uint32_t ds_pairs[kKeySteps][kTile];
};

// A tile of keys against a block of queries.
template <int D>
struct BackwardTile {
  using G = Shape<D>;
  using L = typename G::L;
  QueryBlock<D>* queries = nullptr;
  const KeyBlock<D>* keys = nullptr;
  TileGradients* gradients = nullptr;
  float (*dk)[D] = nullptr;
  float (*dv)[D] = nullptr;
  bool diagonal = false;
  Sums key_sums = Sums::kContinue, query_sums = Sums::kContinue;

  // s = k q and dp = v dout, (keys, queries).
  [[gnu::noinline]] void score(float (*s)[kTile], float (*dp)[kTile], NextRows<D>& next) const {
    const auto between = [&] { next.ask(); };
    BlockChain<G::kSteps, decltype(between)> chain(between);
    Tiles scores{.c = s[0],
                 .c_stride = kTile,
                 .a = keys->k_rows[0],
                 .a_stride = G::kSteps,
                 .b = queries->q_across[0],
                 .b_stride = kTile};
    add_scores(chain, scores, diagonal);
    scores.c = dp[0];
    scores.a = keys->v_rows[0];
    scores.b = queries->dout_across[0];
    add_scores(chain, scores, diagonal);
    chain.finish();
  }

  // p and ds from the scores.
  [[gnu::noinline]] void exponentiate(const float (*s)[kTile], const float (*dp)[kTile],
                                      NextRows<D>& next) const {
    for_key_pairs(
        diagonal, [&]<int First, bool Masks>(int j) __attribute__((always_inline)) {
          if (j % 8 == 0) {
            next.ask();
            amx::stay_awake();
          }
          exponentiate_pair<First, Masks>(j, &s[j], &dp[j]);
        });
  }
  // Of keys j and j + 1.
  template <int First, bool Masks>
  [[gnu::always_inline]] void exponentiate_pair(int j, const float (*s)[kTile],
                                                const float (*dp)[kTile]) const {
    const float scale = kLog2E / std::sqrt(float(D));
    // Whole lines: a tile load of a line that two stores are still writing would wait for both.
#pragma GCC unroll 2
    for (int v = 0; v < kTileVectors; v += 2) {
      f32x16 p[2][2] = {}, ds[2][2] = {};
#pragma GCC unroll 2
      for (int r = 0; r < 2; ++r) {
#pragma GCC unroll 2
        for (int w = 0; w < 2; ++w) {
          const int at = (v + w) * kVector;
          if (v + w < First) continue;
          f32x16 x = exp2_fast(load(s[r] + at) * scale - load(queries->lse + at));
          if (Masks && v + w == First) x = select(sees(j + r - at), x, f32x16{});
          p[r][w] = x;
          ds[r][w] = x * (load(dp[r] + at) - load(queries->delta + at));
        }
        store_line(gradients->p_rows[j + r] + v * kVector / 2, p[r][0], p[r][1]);
        store_line(gradients->ds_rows[j + r] + v * kVector / 2, ds[r][0], ds[r][1]);
      }
#pragma GCC unroll 2
      for (int w = 0; w < 2; ++w) {
        L::store_pair(gradients->ds_pairs[j / 2], kTile, v + w, ds[0][w], ds[1][w]);
      }
    }
  }

  // dv, dk and dq.
  [[gnu::noinline]] void add_products(NextRows<D>& next) const {
    const auto between = [&] { next.ask(); };
    BlockChain<kKeySteps, decltype(between)> chain(between);
    Tiles of_keys{.c = dv[0],
                  .c_stride = D,
                  .a = gradients->p_rows[0],
                  .a_stride = kKeySteps,
                  .b = queries->dout_pairs[0],
                  .b_stride = D};
    chain.template add<kTile, D>(of_keys, key_sums);
    of_keys.c = dk[0];
    of_keys.a = gradients->ds_rows[0];
    of_keys.b = queries->q_pairs[0];
    chain.template add<kTile, D>(of_keys, key_sums);
    chain.template add<D, kTile>({.c = queries->dq[0],
                                  .c_stride = kTile,
                                  .a = keys->k_across[0],
                                  .a_stride = kKeySteps,
                                  .b = gradients->ds_pairs[0],
                                  .b_stride = kTile},
                                 query_sums);
    chain.finish();
  }
};

// One key-value head of one sequence. dk and dv of all its keys are summed in scratch, over the
// heads of the group and then over the blocks of queries. The tiles of the first keys are kept, the
// others laid out again for each block of queries.
//
// The products of a tile follow the scores of the next one: a tile load of what has just been
// stored would wait until it is in the cache.
template <int D>
struct BackwardHead {
  using G = Shape<D>;
  static constexpr int64_t kKept = 8;
  const AttentionBackward<bf16>& a;
  const G geometry;
  const int64_t b, kv;
  float (*const dk)[D];
  float (*const dv)[D];
  QueryBlock<D> queries[2];
  KeyBlock<D> kept[kKept], others[2];
  TileGradients gradients[2];
  alignas(64) float s[kTile][kTile], dp[kTile][kTile];

  BackwardHead(const AttentionBackward<bf16>& of, const G& g, int64_t batch, int64_t head,
               float* scratch)
      : a(of),
        geometry(g),
        b(batch),
        kv(head),
        dk(reinterpret_cast<float (*)[D]>(scratch)),
        dv(dk + g.blocks() * kTile) {}

  void store_queries(const QueryBlock<D>& block, int64_t h, int64_t q0) {
    const float scale = 1.0f / std::sqrt(float(D));
    alignas(64) float rows[amx::kTile][D];
    for (int q = 0; q < geometry.valid(q0); q += amx::kTile) {
      const int count = std::min<int>(amx::kTile, geometry.valid(q0) - q);
      for (int d = 0; d < D; d += amx::kTile) {
        panel::transpose_16(reinterpret_cast<uint32_t*>(rows[0] + d), D,
                            reinterpret_cast<const std::byte*>(&block.dq[d][q]), 4 * kTile);
      }
      for (int r = 0; r < count; ++r) {
        const int64_t t = q0 + q + r;
        bf16* dq = a.dqkv.row(b * a.sequence + t) + geometry.q_column(h);
        store_turned<D>(dq, rows[r], scale, a, t);
      }
      amx::stay_awake();
    }
  }
  void store_keys() {
    const float scale = 1.0f / std::sqrt(float(D));
    for (int64_t t = 0; t < a.sequence; ++t) {
      bf16* row = a.dqkv.row(b * a.sequence + t);
      store_turned<D>(row + geometry.k_column(kv), dk[t], scale, a, t);
      bf16* to = row + geometry.v_column(kv);
      for (int d = 0; d < D; d += kVector) store(to + d, load(dv[t] + d));
      update_amax(a.dv_amax, to, D);
    }
  }
  void run() {
    const int64_t group = a.heads / a.kv_heads, first_head = kv * group;
    BackwardTile<D> last;
    int64_t last_h = 0, last_q0 = 0;
    int tile_at = 0, block_at = 0;
    for (int64_t h = first_head; h < first_head + group; ++h) {
      NextRows<D> next = rows_after<D>(a, b, h);
      for (int64_t q0 = 0; q0 < a.sequence; q0 += kTile) {
        QueryBlock<D>& block = queries[block_at ^= 1];
        block.load_block(a, geometry, b, h, q0);
        for (int64_t k0 = 0; k0 <= q0; k0 += kTile) {
          tile_at ^= 1;
          const bool diagonal = k0 == q0, first = diagonal && h == first_head;
          const bool keeps = k0 < kKept * kTile;
          KeyBlock<D>& keys = keeps ? kept[k0 / kTile] : others[tile_at];
          if (first || !keeps) keys.load_block(a, geometry, b, kv, k0);
          const BackwardTile<D> tile{.queries = &block,
                                     .keys = &keys,
                                     .gradients = &gradients[tile_at],
                                     .dk = dk + k0,
                                     .dv = dv + k0,
                                     .diagonal = diagonal,
                                     .key_sums = first ? Sums::kFromZero : Sums::kContinue,
                                     .query_sums = k0 == 0 ? Sums::kFromZero : Sums::kContinue};
          tile.score(s, dp, next);
          if (last.queries != nullptr) {
            last.add_products(next);
            if (last.diagonal) store_queries(*last.queries, last_h, last_q0);
          }
          tile.exponentiate(s, dp, next);
          last = tile;
          last_h = h;
          last_q0 = q0;
        }
      }
    }
    if (last.queries == nullptr) return;  // a sequence of no tokens
    NextRows<D> none;
    last.add_products(none);
    store_queries(*last.queries, last_h, last_q0);
    store_keys();
  }
};

template <int D>
void backward_head(const AttentionBackward<bf16>& a, int64_t b, int64_t kv, float* scratch) {
  const Shape<D> geometry{a.sequence, a.heads, a.kv_heads};
  BackwardHead<D> head(a, geometry, b, kv, scratch);
  head.run();
}

}  // namespace

void backward_amx(Exec on, const AttentionBackward<bf16>& a) {
  with_head_dim(a.head_dim, [&]<int D>() {
    const int64_t items = a.batch * a.kv_heads, threads = std::min<int64_t>(on.threads, items);
    parallel_for(on, threads, [&](int64_t t) {
      const amx::TileUnit unit;
      float* scratch = a.scratch.data + t * 2 * round_up(a.sequence, kTile) * D;
      for (int64_t item = t * items / threads; item < (t + 1) * items / threads; ++item) {
        backward_head<D>(a, item / a.kv_heads, item % a.kv_heads, scratch);
      }
    });
  });
}

}  // namespace assay::attention

#else

namespace assay::attention {

void backward_amx(Exec, const AttentionBackward<bf16>&) {}

}  // namespace assay::attention

#endif
