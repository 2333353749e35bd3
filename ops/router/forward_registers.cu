#include "base/math.h"
#include "cuda/launch.h"
#include "ops/router/gpu_registers.h"
#include "ops/router/gpu_scores.h"

namespace assay::gpu::router {

namespace {

constexpr int kWarps = 8;
constexpr int kWarpTokens = kRouterPieceTokens / kWarps;  // adjacent ones

// Dynamic shared memory of one block.
struct Lists {
  uint32_t* tokens;  // (E, 2)        the piece's tokens that chose an expert, a bit each
  float* shares;     // (tokens, K)   kGates: of each assignment; kSwitch: (warps, E) sums
  uint8_t* experts;  // (tokens, K)   kGates
};
int64_t lists_bytes(RouterAux aux, int64_t experts, int64_t k) {
  const int64_t tokens = 2 * experts * int64_t{sizeof(uint32_t)};
  if (aux == RouterAux::kGates) return tokens + kRouterPieceTokens * k * 5;
  if (aux == RouterAux::kSwitch) return tokens + kWarps * experts * int64_t{sizeof(float)};
  return tokens;
}

// The experts of a lane are adjacent: lane() * V + c. Of the lanes that hold the best key the
// lowest has the lowest id.
template <int V>
struct Row {
  float z[V];
};

// Beyond the last expert logits are -inf, with scores of 0.
template <int V, int Load>
GPU_DEVICE Row<V> load_row(const RouterForward& a, int64_t t) {
  const int first = lane() * V, experts = int(a.logits.dim[1]);
  const float* logits = a.logits.row(t) + first;
  Row<V> row;
#pragma unroll
  for (int c = 0; c < V; c += Load) {
    Vec<float, Load> part;
    for (int i = 0; i < Load; ++i) part[i] = -kInfinity;
    if (first + c < experts) part = load_vec<Load>(logits + c);
    for (int i = 0; i < Load; ++i) row.z[c + i] = part[i];
  }
  return row;
}

// The largest logit, with NaN below all; -inf if there is none.
GPU_DEVICE float warp_largest(float mine) {
  const uint32_t key = warp_max_u32(order_key(mine));
  return float_of(key >> 31 != 0 ? key & 0x7FFFFFFFu : ~key);
}

// What a lane keeps of the token and the choice that it finishes: lane g * width + i has choice i
// of the g-th token of a group.
struct Mine {
  int32_t expert = 0;
  float z = -kInfinity;
  float score_sum = 0;
  float sum = 0;  // of exp(z - largest)
  Softmax softmax;
};

// A lane's best key, its place among the lane's experts, and its logit.
struct Best {
  uint32_t key = 0;
  int c = 0;
  float z = 0;
};
template <int V>
GPU_DEVICE Best best_of(const uint32_t (&key)[V], const Row<V>& row) {
  Best best{key[0], 0, row.z[0]};
#pragma unroll
  for (int c = 1; c < V; ++c) {
    if (key[c] > best.key) best = {key[c], c, row.z[c]};
  }
  return best;
}

// Chooses K experts by descending key. Lane `first` + i gets the i-th.
template <int V>
GPU_DEVICE void choose(uint32_t (&key)[V], const Row<V>& row, int k, int first, Mine& mine) {
  Best best = best_of(key, row);
  for (int i = 0;; ++i) {
    const uint32_t top = warp_max_u32(best.key);
    const int winner = lowest_bit(ballot(best.key == top));
    const int expert = winner * V + shuffle(best.c, winner);
    const float z = shuffle(best.z, winner);
    if (lane() == first + i) {
      mine.expert = expert;
      mine.z = z;
    }
    if (i + 1 == k) return;
#pragma unroll
    for (int c = 0; c < V; ++c) {
      if (lane() == winner && c == best.c) key[c] = 0;
    }
    best = best_of(key, row);
  }
}

// Which sums over all experts of a token are asked for.
struct Wanted {
  bool logsumexp, score_sum, scores, probabilities, shares;
  GPU_DEVICE explicit Wanted(const RouterForward& a)
      : logsumexp(!a.logsumexp.empty()),
        score_sum(!a.score_sum.empty()),
        scores(score_sum || !a.bias.empty()),
        probabilities(a.settings.score == RouterScore::kSoftmax && logsumexp),
        shares(a.settings.aux == RouterAux::kSwitch) {}
};

// One token: its choices go to lanes first ... first + K - 1, which belong to the token's `width`
// lanes. With kSwitch adds the shares of all experts.
template <int V>
GPU_DEVICE void route_token(const RouterForward& a, const Wanted& wanted, const Row<V>& row,
                            const float (&bias)[V], int first, int width, float (&share)[V],
                            Mine& mine) {
  const RouterSettings& s = a.settings;
  const int experts = int(a.logits.dim[1]);
  Softmax softmax;
  float sum = 0, score_sum = 0;
  if (wanted.logsumexp) {
    float largest = -kInfinity;
#pragma unroll
    for (int c = 0; c < V; ++c) raise(largest, row.z[c]);
    softmax.largest = warp_largest(largest);
#pragma unroll
    for (int c = 0; c < V; ++c) sum += exp_approx(row.z[c] - softmax.largest);
    sum = warp_sum(sum);
    if (wanted.probabilities) softmax.inverse = 1.0f / sum;
  }
  uint32_t key[V];
#pragma unroll
  for (int c = 0; c < V; ++c) {
    float value = row.z[c];
    if (wanted.scores) {
      const float score = score_of(s, value, softmax);
      score_sum += score;
      if (!a.bias.empty()) value = score + bias[c];
    }
    key[c] = lane() * V + c < experts ? order_key(value) : 0;
  }
  if (wanted.score_sum) score_sum = sum_or_smallest(warp_sum(score_sum));
  if (wanted.shares) {
    const float inverse = s.score == RouterScore::kSigmoid ? 1.0f / score_sum : 1.0f;
#pragma unroll
    for (int c = 0; c < V; ++c) share[c] += score_of(s, row.z[c], softmax) * inverse;
  }
  choose(key, row, int(a.expert.dim[1]), first, mine);
  if (lane() / width == first / width) {
    mine.softmax = softmax;
    mine.sum = sum;
    mine.score_sum = score_sum;
  }
}

// The gates of a group of adjacent tokens from `t` on, all at once.
struct Measures {
  double z = 0, entropy = 0;
};
GPU_DEVICE void finish_group(const RouterForward& a, const Wanted& wanted, const Lists& lists,
                             int64_t t, int in_piece, int tokens, int width, Mine mine,
                             Measures& measures) {
  const RouterSettings& s = a.settings;
  const int k = int(a.expert.dim[1]), token = lane() / width, i = lane() % width;
  const bool chosen_here = token < tokens && i < k;
  if (wanted.logsumexp) mine.softmax.logsumexp = mine.softmax.largest + std::log(mine.sum);
  Chosen chosen;
  if (s.score == RouterScore::kSoftmax) {
    if (chosen_here) raise(chosen.largest, mine.z);
    chosen.largest = warp_max(chosen.largest, width);
  }
  const float score = chosen.score(s, mine.z);
  const float sum = warp_sum(chosen_here ? score : 0.0f, width);
  chosen.sum = s.score == RouterScore::kSigmoid ? sum_or_smallest(sum) : sum;
  if (token < tokens && i == 0) {
    measures.z += double(mine.softmax.logsumexp) * double(mine.softmax.logsumexp);
    if (wanted.logsumexp) a.logsumexp[t + token] = mine.softmax.logsumexp;
    if (wanted.score_sum) a.score_sum[t + token] = mine.score_sum;
  }
  if (!chosen_here) return;
  const float share = score / chosen.sum;
  const float gate = s.normalize == NormalizeGates::kNo ? score_of(s, mine.z, mine.softmax) : share;
  a.expert.at(t + token, i) = mine.expert;
  a.gate.at(t + token, i) = s.gate_scale * gate;
  const int at = in_piece + token;
  atomic_add(&lists.tokens[2 * mine.expert + at / 32], 1u << at % 32);  // no other sets this bit
  if (s.aux == RouterAux::kGates) {
    lists.shares[at * k + i] = share;
    lists.experts[at * k + i] = uint8_t(mine.expert);
  }
  if (share > 0) measures.entropy -= double(share * std::log(share));
}

// The sum of one expert's normalised gates over the tokens of `bits`, in order.
GPU_DEVICE void add_gates(const Lists& lists, uint32_t bits, int first, int k, int expert,
                          float& sum) {
  for (; bits != 0; bits &= bits - 1) {
    const int begin = (first + lowest_bit(bits)) * k;
    int i = 0;
    while (int(lists.experts[begin + i]) != expert) ++i;
    sum += lists.shares[begin + i];
  }
}

// The sums of a piece: each thread owns an expert.
GPU_DEVICE void store_sums(const RouterForward& a, const Lists& lists, int64_t piece) {
  const int experts = int(a.logits.dim[1]), k = int(a.expert.dim[1]);
  for (int e = thread_in_block(); e < experts; e += kWarps * kWarp) {
    const uint32_t low = lists.tokens[2 * e], high = lists.tokens[2 * e + 1];
    a.count_partial.at(piece, e) = population_count(low) + population_count(high);
    if (a.settings.aux == RouterAux::kNone) continue;
    float share = 0;
    if (a.settings.aux == RouterAux::kGates) {
      add_gates(lists, low, 0, k, e, share);
      add_gates(lists, high, 32, k, e, share);
    } else {
      for (int w = 0; w < kWarps; ++w) share += lists.shares[w * experts + e];
    }
    a.share_partial.at(piece, e) = share;
  }
}

// Each block owns a piece of tokens and its sums, each warp 8 adjacent tokens, one after the other:
// a lane holds V logits and keys in registers, and the next token's logits are on their way while
// this one's experts are chosen. Gates are computed for as many tokens at once as fit into 32 lanes
// (`width` lanes each, a power of two from K on). Logits are read once. Bound by instructions.
template <int V, int Load>
__global__ __launch_bounds__(kWarps* kWarp, V > 4 ? 3 : 4) void router_forward_registers_kernel(
    const __grid_constant__ RouterForward a, int64_t group_tokens, int width) {
  GPU_DYNAMIC_SHARED(uint32_t, memory);
  GPU_SHARED(double, measured, [kWarps][2]);
  const int experts = int(a.logits.dim[1]), k = int(a.expert.dim[1]);
  Lists lists;
  lists.tokens = memory;
  lists.shares = reinterpret_cast<float*>(memory + 2 * experts);
  lists.experts = reinterpret_cast<uint8_t*>(lists.shares + kRouterPieceTokens * k);
  for (int i = thread_in_block(); i < 2 * experts; i += kWarps * kWarp) lists.tokens[i] = 0;
  sync_block();

  // Tokens of the block: one of the `pieces` of a group; of the warp: [begin, end) of them.
  const int64_t p = blockIdx.x, pieces = ceil_div(group_tokens, kRouterPieceTokens);
  const int64_t first = p / pieces * group_tokens + p % pieces * kRouterPieceTokens;
  const int64_t left = (p / pieces + 1) * group_tokens - first;
  const int tokens = int(left < kRouterPieceTokens ? left : kRouterPieceTokens);
  const int begin = warp() * kWarpTokens;
  const int end = begin + kWarpTokens < tokens ? begin + kWarpTokens : tokens;

  const Wanted wanted(a);
  float bias[V] = {}, share[V] = {};
#pragma unroll
  for (int c = 0; c < V; ++c) {
    if (!a.bias.empty() && lane() * V + c < experts) bias[c] = a.bias[lane() * V + c];
  }
  Measures measures;
  Row<V> row = {};
  if (begin < end) row = load_row<V, Load>(a, first + begin);
  for (int start = begin; start < end; start += kWarp / width) {
    const int group = end - start < kWarp / width ? end - start : kWarp / width;
    Mine mine;
    for (int g = 0; g < group; ++g) {
      Row<V> next = row;
      if (start + g + 1 < end) next = load_row<V, Load>(a, first + start + g + 1);
      route_token(a, wanted, row, bias, g * width, width, share, mine);
      row = next;
    }
    finish_group(a, wanted, lists, first + start, start, group, width, mine, measures);
  }

  // Store the sums of the piece.
  measures.z = warp_sum(measures.z);
  measures.entropy = warp_sum(measures.entropy);
  if (lane() == 0) {
    measured[warp()][0] = measures.z;
    measured[warp()][1] = measures.entropy;
  }
#pragma unroll
  for (int c = 0; c < V; ++c) {
    const int e = lane() * V + c;
    if (wanted.shares && e < experts) lists.shares[warp() * experts + e] = share[c];
  }
  sync_block();
  if (!a.counts.empty() || a.settings.aux != RouterAux::kNone) store_sums(a, lists, p);
  if (thread_in_block() != 0 || a.measures.empty()) return;
  for (int w = 1; w < kWarps; ++w) {
    measures.z += measured[w][0];
    measures.entropy += measured[w][1];
  }
  a.measure_partial.at(p, kAuxValue) = 0;
  a.measure_partial.at(p, kZValue) = measures.z;
  a.measure_partial.at(p, kGateEntropy) = measures.entropy;
}

template <int V>
void launch_registers(Exec on, const Launch& how, const RouterForward& a, int64_t group_tokens,
                      int width) {
  constexpr int kLoad = V < 4 ? V : 4;
  const bool vectors = a.logits.dim[1] % kLoad == 0 && aligned16(a.logits.data);
  launch(
      on, how,
      vectors ? router_forward_registers_kernel<V, kLoad> : router_forward_registers_kernel<V, 1>,
      a, group_tokens, width);
}

}  // namespace

void forward_in_registers(Exec on, const RouterForward& a) {
  const int64_t tokens = a.logits.dim[0], experts = a.logits.dim[1], k = a.expert.dim[1];
  const int64_t group_tokens = tokens / router_groups(tokens, a.settings);
  const int width = k <= 8 ? 8 : k <= 16 ? 16 : 32;
  const Launch how{.name = "router_forward",
                   .grid = {unsigned(router_pieces(tokens, a.settings))},
                   .block = {kWarp, kWarps},
                   .shared_bytes = lists_bytes(a.settings.aux, experts, k)};
  const auto launch_for = experts <= 64    ? launch_registers<2>
                          : experts <= 128 ? launch_registers<4>
                                           : launch_registers<8>;
  launch_for(on, how, a, group_tokens, width);
}

}  // namespace assay::gpu::router
