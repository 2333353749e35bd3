#include <algorithm>

#include "base/math.h"
#include "cuda/launch.h"
#include "ops/router.h"
#include "ops/router/gpu_registers.h"
#include "ops/router/gpu_select.h"

namespace assay::gpu {

using namespace router;

namespace {

constexpr int kMaxWarps = 12;
[[maybe_unused]] constexpr int kMaxThreads = kMaxWarps * kWarp;  // read by nvcc only
constexpr int kReduceRows = 32;
constexpr int kBlock = 256;

// Dynamic shared memory of one block.
struct ForwardShared {
  uint32_t* rows;   // (warps, row_words)
  int32_t* counts;  // (E)
  float* shares;    // (E)
  int32_t* ids;     // (warps, K)
  float* ghats;     // (warps, K)
};

// Adds a round's normalised gates, or its shares of all experts, to the block's sums, in token
// order.
GPU_DEVICE void add_round(RouterAux aux, const ForwardShared& shared, int warps, int words,
                          int experts, int k) {
  if (aux == RouterAux::kSwitch) {
    for (int e = thread_in_block(); e < experts; e += int(blockDim.x * blockDim.y)) {
      float sum = 0;
      for (int w = 0; w < warps; ++w) sum += float_of(shared.rows[w * words + e]);
      shared.shares[e] += sum;
    }
  } else if (warp() == 0) {
    for (int w = 0; w < warps; ++w) {
      for (int i = lane(); i < k; i += kWarp) {
        shared.shares[shared.ids[w * k + i]] += shared.ghats[w * k + i];
      }
      sync_warp();
    }
  }
}

// Each block owns a piece of tokens and its sums, each warp one token at a time, with the keys in
// shared memory. Bound by memory for small K (logits are read once from memory, those of the chosen
// experts again from L2; `switch` reads the row twice), by instructions if each score needs an
// exponential (E = 4096 with a bias: about 2000 instructions of the warp per token).
template <int V, int Loads>
__global__ __launch_bounds__(kMaxThreads, Loads > 4 ? 1 : 2) void router_forward_kernel(
    const __grid_constant__ RouterForward a, int64_t group_tokens, int words) {
  // Shared memory.
  GPU_DYNAMIC_SHARED(uint32_t, rows);
  GPU_SHARED(double, measures, [kMaxWarps][2]);
  const int experts = int(a.logits.dim[1]), k = int(a.expert.dim[1]), warps = int(blockDim.y);
  ForwardShared shared;
  shared.rows = rows;
  shared.counts = reinterpret_cast<int32_t*>(rows + warps * words);
  shared.shares = reinterpret_cast<float*>(shared.counts + experts);
  shared.ids = reinterpret_cast<int32_t*>(shared.shares + experts);
  shared.ghats = reinterpret_cast<float*>(shared.ids + warps * k);

  // Tokens of the block: one of the `pieces` of a group.
  const RouterAux aux = a.settings.aux;
  const int64_t p = blockIdx.x;
  const int64_t pieces = ceil_div(group_tokens, kRouterPieceTokens);
  const int64_t group = p / pieces, first = group * group_tokens;
  const int64_t begin = first + p % pieces * kRouterPieceTokens;
  const int64_t left = first + group_tokens - begin;
  const int tokens = int(left < kRouterPieceTokens ? left : kRouterPieceTokens);

  // Clear the sums.
  for (int e = thread_in_block(); e < experts; e += warps * kWarp) {
    shared.counts[e] = 0;
    shared.shares[e] = 0;
  }
  sync_block();

  // Main loop: one token per warp and round.
  double z_measure = 0, entropy = 0;
  const Row<V> row{rows + warp() * words, experts};
  int32_t* ids = shared.ids + warp() * k;
  for (int start = 0; start < tokens; start += warps) {
    if (start + warp() < tokens) {
      const int64_t t = begin + start + warp();
      float score_sum = 0;
      const Softmax softmax = load_logits<Loads>(a, t, row);
      const Candidate best = make_keys(a, softmax, row, score_sum);
      score_sum = sum_or_smallest(warp_sum(score_sum));
      sync_warp();  // keys are written by their lane and read by all lanes
      select_best(row, best, k, ids);
      sync_warp();  // ids are written
      entropy += double(write_chosen(a, t, softmax, ids, shared.counts, shared.ghats + warp() * k));
      z_measure += double(softmax.logsumexp) * double(softmax.logsumexp);
      if (lane() == 0 && !a.logsumexp.empty()) a.logsumexp[t] = softmax.logsumexp;
      if (lane() == 0 && !a.score_sum.empty()) a.score_sum[t] = score_sum;
      if (aux == RouterAux::kSwitch) write_shares<V>(a, t, softmax, score_sum, row.word);
      sync_warp();  // the row may be overwritten
    }
    if (aux == RouterAux::kNone) continue;
    sync_block();
    add_round(aux, shared, tokens - start < warps ? tokens - start : warps, words, experts, k);
    sync_block();
  }

  // Store the sums of the piece.
  entropy = warp_sum(entropy);
  if (lane() == 0) {
    measures[warp()][0] = z_measure;
    measures[warp()][1] = entropy;
  }
  sync_block();
  for (int e = thread_in_block(); e < experts; e += warps * kWarp) {
    a.count_partial.at(p, e) = shared.counts[e];
    if (aux != RouterAux::kNone) a.share_partial.at(p, e) = shared.shares[e];
  }
  if (thread_in_block() != 0 || a.measures.empty()) return;
  double z_sum = 0, entropy_sum = 0;
  for (int w = 0; w < warps; ++w) {
    z_sum += measures[w][0];
    entropy_sum += measures[w][1];
  }
  a.measure_partial.at(p, kAuxValue) = 0;
  a.measure_partial.at(p, kZValue) = z_sum;
  a.measure_partial.at(p, kGateEntropy) = entropy_sum;
}

// Sums the pieces of a group into the first piece of the group, and all groups into counts. Each
// block owns 32 experts of a group.
__global__ __launch_bounds__(kWarp* kReduceRows) void router_reduce_kernel(
    const __grid_constant__ RouterForward a, int64_t pieces) {
  GPU_SHARED(int32_t, counts, [kReduceRows][kWarp]);
  GPU_SHARED(double, shares, [kReduceRows][kWarp]);
  const int64_t experts = a.logits.dim[1], slices = ceil_div(experts, kWarp);
  const int64_t first = blockIdx.x / slices * pieces;
  const int64_t e = blockIdx.x % slices * kWarp + threadIdx.x;
  const int y = int(threadIdx.y);

  int32_t count = 0;
  double share = 0;
  if (e < experts) {
#pragma unroll 4
    for (int64_t p = first + y; p < first + pieces; p += kReduceRows) {
      count += a.count_partial.at(p, e);
      if (!a.share_partial.empty()) share += double(a.share_partial.at(p, e));
    }
  }
  counts[y][threadIdx.x] = count;
  shares[y][threadIdx.x] = share;
  sync_block();
  if (y > 0 || e >= experts) return;
  for (int other = 1; other < kReduceRows; ++other) {
    count += counts[other][threadIdx.x];
    share += shares[other][threadIdx.x];
  }
  a.count_partial.at(first, e) = count;
  if (!a.share_partial.empty()) a.share_partial.at(first, e) = float(share);
  if (!a.counts.empty()) atomic_add(&a.counts[e], int64_t{count});
}

// aux_slope of one group per block, from its summed shares and the counts; the aux value of the
// group goes to its first piece of measure_partial.
__global__ __launch_bounds__(kBlock) void router_aux_kernel(const __grid_constant__ RouterForward a,
                                                            int64_t group_tokens, int64_t pieces) {
  GPU_SHARED(double, scratch, [kWarp]);
  const int64_t experts = a.logits.dim[1], group = blockIdx.x;
  const int32_t* count = a.count_partial.row(group * pieces);
  const float* share = a.share_partial.row(group * pieces);
  const bool step = a.settings.scope == AuxScope::kStep;
  const auto assigned = [&](int64_t e) { return step ? double(a.counts[e]) : double(count[e]); };

  double assignments = 0, shares = 0, product = 0;
  for (int64_t e = threadIdx.x; e < experts; e += kBlock) {
    assignments += assigned(e);
    shares += double(share[e]);
    product += assigned(e) * double(share[e]);
  }
  assignments = block_sum(assignments, scratch);
  shares = block_sum(shares, scratch);
  product = block_sum(product, scratch);

  const bool gates = a.settings.aux == RouterAux::kGates;
  if (!gates) shares = double(group_tokens);  // P is a mean over tokens
  const double scale = double(experts) / assignments;
  const double aux = shares > 0 ? scale * product / shares : 0;
  const double mean = gates ? aux : 0;
  const double weight = shares > 0 ? 1 / (shares * double(a.aux_slope.dim[0])) : 0;
  for (int64_t e = threadIdx.x; e < experts; e += kBlock) {
    a.aux_slope.at(group, e) = float((scale * assigned(e) - mean) * weight);
  }
  if (threadIdx.x == 0 && !a.measures.empty()) {
    a.measure_partial.at(group * pieces, kAuxValue) = aux;
  }
}

// One block sums the measures over the pieces.
__global__ __launch_bounds__(kBlock) void router_measures_kernel(
    const __grid_constant__ RouterForward a, int64_t pieces, int64_t groups) {
  GPU_SHARED(double, scratch, [kWarp]);
  for (int m = 0; m < kRouterMeasures; ++m) {
    double sum = 0;
    for (int64_t p = threadIdx.x; p < pieces; p += kBlock) sum += a.measure_partial.at(p, m);
    sum = block_sum(sum, scratch);
    if (threadIdx.x != 0) continue;
    a.measures[m] += sum / double(m == kAuxValue ? groups : a.logits.dim[0]);
  }
}

// One block: the counts are integers, so the order of their sum does not matter.
__global__ __launch_bounds__(kBlock) void router_bias_update_kernel(
    const __grid_constant__ RouterBiasUpdate a) {
  GPU_SHARED(int64_t, scratch, [kWarp]);
  const int64_t experts = a.bias.dim[0];
  int64_t total = 0, signs = 0;
  for (int64_t e = threadIdx.x; e < experts; e += kBlock) total += a.counts[e];
  total = block_sum(total, scratch);
  if (total == 0) return;
  const auto sign = [&](int64_t e) {
    const int64_t excess = a.counts[e] * experts - total;
    return int(excess > 0) - int(excess < 0);
  };
  for (int64_t e = threadIdx.x; e < experts; e += kBlock) signs += sign(e);
  signs = block_sum(signs, scratch);
  const double mean = double(signs) / double(experts);
  const double rate =
      double(a.rate) * (a.lead.empty() ? 1 : mean_lead(a.lead[kLeadUnits], a.lead[kLeadRows]));
  for (int64_t e = threadIdx.x; e < experts; e += kBlock) {
    const double over = a.rule == BiasRule::kSign
                            ? sign(e) - mean
                            : double(a.counts[e] * experts - total) / double(total);
    const double b = double(a.bias[e]) - rate * over;
    a.bias[e] = float(b < -16.0 ? -16.0 : b > 16.0 ? 16.0 : b);
  }
}

// One block: a few rows.
__global__ __launch_bounds__(kBlock) void router_lead_sum_kernel(
    const __grid_constant__ RouterLeadSum a) {
  GPU_SHARED(int64_t, scratch, [kWarp]);
  int64_t units = 0;
  for (int64_t t = threadIdx.x; t < a.lead.dim[0]; t += kBlock) units += lead_units(a.lead[t]);
  units = block_sum(units, scratch);
  if (threadIdx.x != 0) return;
  a.sum[kLeadUnits] = units;
  a.sum[kLeadRows] = a.lead.dim[0];
}

// One warp per token, for a few rows: every lane searches for its experts among the chosen.
__global__ __launch_bounds__(kBlock) void router_margin_kernel(
    const __grid_constant__ RouterMargin a) {
  const int64_t t = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  if (t >= a.logits.dim[0]) return;
  const int experts = int(a.logits.dim[1]), k = int(a.expert.dim[1]);
  const RouterSettings& s = a.settings;
  const float* z = a.logits.row(t);
  const int32_t* id = a.expert.row(t);
  Softmax softmax;
  if (s.score == RouterScore::kSoftmax) {
    softmax.largest = -kInfinity;
    for (int e = lane(); e < experts; e += kWarp) raise(softmax.largest, z[e]);
    softmax.largest = warp_max(softmax.largest);
    float sum = 0;
    for (int e = lane(); e < experts; e += kWarp) sum += exp_approx(z[e] - softmax.largest);
    softmax.finish(sum);
  }
  const auto key = [&](int e) {
    const float score = score_of(s, z[e], softmax);
    return a.bias.empty() ? score : score + a.bias[e];
  };

  // Best key that is not chosen.
  float best = -kInfinity;
  for (int e = lane(); e < experts; e += kWarp) {
    int found = 0;
    for (int i = 0; i < k; ++i) found |= int(id[i] == e);
    if (found == 0) raise(best, key(e));
  }
  best = warp_max(best);
  if (lane() == 0) {
    a.margin[t] = k == experts ? 0 : key(id[k - 1]) - best;
    a.lead[t] = k == experts ? 0 : key(id[0]) - best;
  }
}

void forward_in_shared_memory(Exec on, const RouterForward& a) {
  const int64_t tokens = a.logits.dim[0], experts = a.logits.dim[1], k = a.expert.dim[1];
  require_router_room(experts, k, on.gpu->kind.shared_bytes);
  const int64_t room = warps_that_fit(experts, k, on.gpu->kind.shared_bytes);
  // The fewest rounds that fit, then the fewest warps for these rounds.
  const int64_t most = std::min<int64_t>(room, kMaxWarps);
  const int64_t rounds = ceil_div(kRouterPieceTokens, most);
  const unsigned warps = unsigned(ceil_div(kRouterPieceTokens, rounds));
  const bool vectors = experts % 4 == 0 && aligned16(a.logits.data) && aligned16(a.bias.data);
  // Long rows leave room for one block per SM, which needs more loads in flight.
  const auto kernel = !vectors          ? router_forward_kernel<1, 4>
                      : experts >= 1024 ? router_forward_kernel<4, 8>
                                        : router_forward_kernel<4, 2>;
  const Launch how{.name = "router_forward",
                   .grid = {unsigned(router_pieces(tokens, a.settings))},
                   .block = {kWarp, warps},
                   .shared_bytes = fixed_bytes(experts) + warps * warp_bytes(experts, k)};
  launch(on, how, kernel, a, tokens / router_groups(tokens, a.settings), row_words(experts));
}

}  // namespace

void router_forward(Exec on, const RouterForward& a) {
  const int64_t tokens = a.logits.dim[0], experts = a.logits.dim[1];
  const int64_t groups = router_groups(tokens, a.settings),
                pieces = router_pieces(tokens, a.settings);
  if (groups == 0) return;
  if (forward_fits_registers(a)) {
    forward_in_registers(on, a);
  } else {
    forward_in_shared_memory(on, a);
  }

  const bool aux = a.settings.aux != RouterAux::kNone;
  if (aux || !a.counts.empty()) {
    const int64_t slices = ceil_div(experts, kWarp);
    launch(on,
           {.name = "router_reduce",
            .grid = {unsigned(slices * groups)},
            .block = {kWarp, kReduceRows}},
           router_reduce_kernel, a, pieces / groups);
  }
  if (aux) {
    launch(on, {.name = "router_aux", .grid = {unsigned(groups)}, .block = {kBlock}},
           router_aux_kernel, a, tokens / groups, pieces / groups);
  }
  if (!a.measures.empty()) {
    launch(on, {.name = "router_measures", .grid = {1}, .block = {kBlock}}, router_measures_kernel,
           a, pieces, groups);
  }
}

void router_bias_update(Exec on, const RouterBiasUpdate& a) {
  launch(on, {.name = "router_bias_update", .grid = {1}, .block = {kBlock}},
         router_bias_update_kernel, a);
}

void router_margin(Exec on, const RouterMargin& a) {
  const unsigned warps = kBlock / kWarp;
  launch(on,
         {.name = "router_margin",
          .grid = {unsigned(ceil_div(a.logits.dim[0], warps))},
          .block = {kWarp, warps}},
         router_margin_kernel, a);
}

void router_lead_sum(Exec on, const RouterLeadSum& a) {
  launch(on, {.name = "router_lead_sum", .grid = {1}, .block = {kBlock}}, router_lead_sum_kernel,
         a);
}

}  // namespace assay::gpu
