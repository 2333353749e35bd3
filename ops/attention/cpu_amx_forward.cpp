// Forward attention on the CPU matrix unit.
#include "ops/attention/cpu_amx.h"
#include "ops/attention/cpu_amx_tiles.h"

#if ASSAY_AMX

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/math.h"
#include "cuda/exec.h"
#include "ops/attention/cpu_softmax.h"

namespace assay::attention {

namespace {

// A tile of keys and values in the layouts of the products.
template <int D>
struct KeyTile {
  using L = typename Shape<D>::L;
  alignas(64) uint32_t k_rows[kTile][Shape<D>::kSteps];
  alignas(64) uint32_t v_across[D][kKeySteps];

  void load(const Text<bf16>& text, int64_t kv, int64_t k0) {
    alignas(64) uint32_t v_pairs[kKeySteps][D];
    load_rows_at<L, D>(k_rows, [&](int r) { return text.value(k0 + r, kv); });
    pair_rows<L, D>(v_pairs, k_rows);
    amx::stay_awake();
    transpose_pairs<D>(v_across, v_pairs);
    load_rows_at<L, D>(k_rows, [&](int r) { return text.key(k0 + r, kv); });
  }
};

// The key tiles of one key-value head at a time. The first kMostKept at most are kept for other
// blocks of queries of its heads; the others are laid out for each block.
template <int D>
class KeyTiles {
 public:
  static constexpr int64_t kMostKept = 8;

  void choose(const Text<bf16>& text, int64_t kv, int64_t kept) {
    text_ = &text;
    kv_ = kv;
    tiles_kept_ = kept;
    for (bool& has : has_) has = false;
  }
  // Stays until the next but one call.
  const KeyTile<D>& at(int64_t k0) {
    const int64_t tile = k0 / kTile;
    if (tile < tiles_kept_) {
      if (!has_[tile]) kept_[tile].load(*text_, kv_, k0);
      has_[tile] = true;
      return kept_[tile];
    }
    KeyTile<D>& other = others_[tile % 2];
    other.load(*text_, kv_, k0);
    return other;
  }

 private:
  const Text<bf16>* text_ = nullptr;
  int64_t kv_ = 0, tiles_kept_ = 0;
  bool has_[kMostKept];
  KeyTile<D> kept_[kMostKept], others_[2];
};

// Of q, k and v, and of out.
template <int D>
using NextRows = LinesAhead<D, 3, 1>;

// The rows of the head after `head`, in the next text if it is the last one.
template <int D>
NextRows<D> rows_after(const Text<bf16>& text, int64_t head) {
  const bool wraps = head + 1 == text.heads;
  const int64_t next = wraps ? 0 : head + 1, row = wraps ? text.own.dim[0] : 0;
  const int64_t wide = text.own.dim[1], narrow = text.out.dim[1];
  const bf16* qkv = text.own.data + row * wide;
  const int64_t k = text.heads + text.kv_of(next);
  return {{{qkv + next * D, wide},
           {qkv + k * D, wide},
           {qkv + (k + text.kv_heads) * D, wide},
           {text.out.data + row * narrow + next * D, narrow}},
          text.own.dim[0]};
}

// 64 queries of one head, and one tile of the keys at a time. The weighted sum of v is kept
// transposed: (D, queries).
template <int D>
struct QueryTile {
  using G = Shape<D>;
  using L = typename G::L;
  const Text<bf16>& text;
  int64_t head, q0;
  NextRows<D>& next;
  alignas(64) uint32_t q_across[G::kSteps][kTile];
  alignas(64) uint32_t p[kKeySteps][kTile];
  alignas(64) float s[kTile][kTile];  // (keys, queries)
  alignas(64) float out[D][kTile];    // sum of p v
  alignas(64) float shrink[kTile];    // of each query's sums, when its maximum grows

  QueryTile(const Text<bf16>& of, int64_t h, int64_t first, NextRows<D>& ahead)
      : text(of), head(h), q0(first), next(ahead) {
    alignas(64) uint32_t rows[kTile][G::kSteps];
    load_rows_at<L, D>(rows, [&](int r) { return text.query(q0 + r, head); });
    amx::stay_awake();
    transpose_rows<G::kSteps>(q_across, rows);
  }

  void ask() {
    next.ask();
    next.ask();
  }

  // s = k q
  [[gnu::noinline]] void multiply_keys(const KeyTile<D>& keys, bool diagonal) {
    const auto between = [&] { ask(); };
    BlockChain<G::kSteps, decltype(between)> chain(between);
    add_scores(chain,
               {.c = s[0],
                .c_stride = kTile,
                .a = keys.k_rows[0],
                .a_stride = G::kSteps,
                .b = q_across[0],
                .b_stride = kTile},
               diagonal);
    chain.finish();
  }

  // s = scale s, -infinity where masked, and its maximum.
  [[gnu::noinline]] void score(OnlineSoftmax& softmax, bool diagonal) {
    const float scale = kLog2E / std::sqrt(float(D));
    f32x16 top[kTileVectors];
    std::copy_n(softmax.top, kTileVectors, top);
    for_key_pairs(
        diagonal, [&]<int First, bool Masks>(int j) __attribute__((always_inline)) {
#pragma GCC unroll 2
          for (int r = 0; r < 2; ++r) {
#pragma GCC unroll 4
            for (int v = First; v < kTileVectors; ++v) {
              f32x16 x = load(s[j + r] + v * kVector) * scale;
              if (Masks && v == First) {
                x = select(sees(j + r - v * kVector), x, broadcast(-INFINITY));
              }
              top[v] = select(top[v] < x, x, top[v]);
              store(s[j + r] + v * kVector, x);
            }
          }
        });
    std::copy_n(top, kTileVectors, softmax.top);
  }

  // p = exp2(s - maximum), and its sum.
  [[gnu::noinline]] void exponentiate(OnlineSoftmax& softmax, bool diagonal) {
    f32x16 sum[kTileVectors], top[kTileVectors];
    std::copy_n(softmax.sum, kTileVectors, sum);
    std::copy_n(softmax.top, kTileVectors, top);
    for_key_pairs(
        diagonal, [&]<int First, bool Masks>(int j) __attribute__((always_inline)) {
          if (j % 8 == 0) {
            ask();
            amx::stay_awake();
          }
#pragma GCC unroll 4
          for (int v = 0; v < kTileVectors; ++v) {
            f32x16 even = {}, odd = {};
            if (v >= First) {
              even = exp2_fast(load(s[j] + v * kVector) - top[v]);
              odd = exp2_fast(load(s[j + 1] + v * kVector) - top[v]);
              sum[v] += even + odd;
            }
            L::store_pair(p[j / 2], kTile, v, even, odd);
          }
        });
    std::copy_n(sum, kTileVectors, softmax.sum);
  }

  // out = shrink out
  [[gnu::always_inline]] void shrink_values() {
    for (int d = 0; d < D; ++d) {
      for (int v = 0; v < kTileVectors; ++v) {
        store(out[d] + v * kVector, load(out[d] + v * kVector) * load(shrink + v * kVector));
      }
    }
  }

  // out = or += v p
  [[gnu::noinline]] void add_values(const KeyTile<D>& keys, Sums sums) {
    const auto between = [&] { ask(); };
    BlockChain<kKeySteps, decltype(between)> chain(between);
    chain.template add<D, kTile>({.c = out[0],
                                  .c_stride = kTile,
                                  .a = keys.v_across[0],
                                  .a_stride = kKeySteps,
                                  .b = p[0],
                                  .b_stride = kTile},
                                 sums);
    chain.finish();
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
      amx::stay_awake();
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

// 64 queries of one head against all keys that they see. The values of a tile are added after the
// scores of the next one: a tile load of what has just been stored would wait until it is in the
// cache.
template <int D>
void queries_forward(KeyTiles<D>& keys, const Text<bf16>& text, int64_t h, int64_t q0,
                     NextRows<D>& next) {
  QueryTile<D> queries(text, h, q0, next);
  OnlineSoftmax softmax;
  const KeyTile<D>* before = nullptr;
  for (int64_t k0 = 0; k0 <= q0; k0 += kTile) {
    const bool diagonal = k0 == q0;
    const KeyTile<D>& tile = keys.at(k0);
    queries.multiply_keys(tile, diagonal);
    if (k0 > 0) queries.add_values(*before, k0 == kTile ? Sums::kFromZero : Sums::kContinue);
    const OnlineSoftmax last = softmax;
    queries.score(softmax, diagonal);
    softmax.rescale(last, queries.shrink);
    amx::stay_awake();
    queries.exponentiate(softmax, diagonal);
    if (k0 > 0) queries.shrink_values();
    before = &tile;
  }
  queries.add_values(*before, q0 == 0 ? Sums::kFromZero : Sums::kContinue);
  queries.store_rows(softmax);
}

}  // namespace

void forward_block_amx(const Text<bf16>& text, int64_t head, int64_t block) {
  const amx::TileUnit unit;
  with_head_dim(text.head_dim, [&]<int D>() {
    KeyTiles<D> keys;
    keys.choose(text, text.kv_of(head), 0);
    NextRows<D> next;
    if (block + 1 == text.blocks()) next = rows_after<D>(text, head);
    queries_forward<D>(keys, text, head, block * kTile, next);
  });
}

void forward_amx(Exec on, const AttentionForward<bf16>& a) {
  const int64_t blocks = ceil_div(a.sequence, kTile), items = a.batch * a.heads * blocks;
  const int64_t threads = std::min<int64_t>(on.threads, items);
  with_head_dim(a.head_dim, [&]<int D>() {
    parallel_for(on, threads, [&](int64_t thread) {
      const amx::TileUnit unit;
      KeyTiles<D> keys;
      NextRows<D> next;
      int64_t in_turn = -1, chosen = -1;  // the head, and the key-value head
      Text<bf16> text;
      for (int64_t i = thread * items / threads; i < (thread + 1) * items / threads; ++i) {
        const int64_t head = i / blocks, h = head % a.heads;
        const int64_t block = balanced_block(i % blocks, blocks);
        if (head != in_turn) {
          in_turn = head;
          text = text_of(a, head / a.heads);
          next = rows_after<D>(text, h);
        }
        if (const int64_t kv = head / (a.heads / a.kv_heads); kv != chosen) {
          chosen = kv;
          keys.choose(text, text.kv_of(h), KeyTiles<D>::kMostKept);
        }
        queries_forward<D>(keys, text, h, block * kTile, next);
        raise_amax(a, text, h, block);
      }
    });
  });
}

}  // namespace assay::attention

#else

namespace assay::attention {

void forward_block_amx(const Text<bf16>&, int64_t, int64_t) {}
void forward_amx(Exec, const AttentionForward<bf16>&) {}

}  // namespace assay::attention

#endif
