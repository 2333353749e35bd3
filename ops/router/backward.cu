#include "base/math.h"
#include "cuda/launch.h"
#include "ops/gpu/elements.h"
#include "ops/router.h"
#include "ops/router/gpu_scores.h"

namespace assay::gpu {

using namespace router;

namespace {

constexpr int kWarps = 8;  // warps per block, one per token

// Gradients of the chosen logits of a token through their own scores (formulas:
// ops/router/backward.cpp). Constructed by all lanes of a warp together; any lane may then call
// u(i).
template <typename T>
struct ChosenSlopes {
  const RouterBackward<T>& a;
  const float* z;      // logits of the token
  const int32_t* id;   // its chosen experts
  const float* dgate;  // of the token
  const float* slope;  // aux_slope with kGates, else null
  float lse;
  Chosen chosen;
  float mean = 0;  // <ghat, dghat>

  GPU_DEVICE ChosenSlopes(const RouterBackward<T>& args, int64_t t, const float* aux_slope,
                          float logsumexp)
      : a(args),
        z(args.logits.row(t)),
        id(args.expert.row(t)),
        dgate(args.dgate.row(t)),
        slope(args.settings.aux == RouterAux::kGates ? aux_slope : nullptr),
        lse(logsumexp) {
    const int k = int(a.expert.dim[1]);
    chosen = chosen_sum(a.settings, z, id, k);
    float dot = 0;
    for (int i = lane(); i < k; i += kWarp) dot += ghat(i) * dghat(i);
    dot = warp_sum(dot);
    mean = chosen.clamped ? 0 : dot;
  }
  GPU_DEVICE float ghat(int i) const { return chosen.score(a.settings, z[id[i]]) / chosen.sum; }
  GPU_DEVICE float dghat(int i) const {
    float d = a.settings.normalize == NormalizeGates::kYes ? a.settings.gate_scale * dgate[i] : 0;
    if (slope != nullptr) d += a.aux_weight * slope[id[i]];
    return d;
  }
  GPU_DEVICE float u(int i) const {
    const RouterSettings& s = a.settings;
    const bool is_sigmoid = s.score == RouterScore::kSigmoid;
    const float logit = z[id[i]];
    float slope_of = ghat(i) * (dghat(i) - mean);
    if (s.normalize == NormalizeGates::kNo) {
      const float score = is_sigmoid ? chosen.score(s, logit) : exp_approx(logit - lse);
      slope_of += score * s.gate_scale * dgate[i];
    }
    return is_sigmoid ? slope_of * s.route_scale * sigmoid(-s.route_scale * logit) : slope_of;
  }
};

template <typename T>
GPU_DEVICE const float* slope_row(const RouterBackward<T>& a, int64_t t) {
  if (a.settings.aux == RouterAux::kNone || a.aux_weight == 0.0f) return nullptr;
  return a.aux_slope.row(t / (a.logits.dim[0] / a.aux_slope.dim[0]));
}

// One warp per token. Bound by writing the zeros of dlogits, if it is requested; the chosen logits
// are written over them, which L2 absorbs.
template <typename T, int V>
__global__ __launch_bounds__(kWarps* kWarp) void router_sparse_kernel(
    const __grid_constant__ RouterBackward<T> a) {
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (t >= a.logits.dim[0]) return;
  const int k = int(a.expert.dim[1]);
  const float lse = a.logsumexp.empty() ? 0 : a.logsumexp[t];
  const ChosenSlopes<T> slopes(a, t, slope_row(a, t), lse);
  if (!a.dlogits.empty()) {
    T* dz = a.dlogits.row(t);
    for (int e = lane() * V; e < int(a.logits.dim[1]); e += kWarp * V) {
      store_vec(dz + e, Vec<T, V>{});
    }
    sync_warp();  // zeros are written before the chosen logits
  }
  for (int i = lane(); i < k; i += kWarp) {
    const float u = slopes.u(i);
    if (!a.dchosen.empty()) a.dchosen.at(t, i) = u;
    if (!a.dlogits.empty()) a.dlogits.at(t, slopes.id[i]) = T(u);
  }
}

// Gradient terms of every logit of a token: switch, z, and the sum of softmax.
template <typename T>
struct DenseSlopes {
  const RouterBackward<T>& a;
  const float* slope;  // aux_slope with kSwitch, else null
  float lse;
  float score_sum;
  float mean = 0;  // mean of the slopes, weighted by the shares
  float z_slope = 0;
  float through_sum = 0;  // softmax: every logit lowers the others' probabilities

  GPU_DEVICE float share(float z) const {
    return a.settings.score == RouterScore::kSigmoid
               ? sigmoid(a.settings.route_scale * z) / score_sum
               : exp_approx(z - lse);
  }
  GPU_DEVICE float operator()(int e, float z) const {
    const float scale = a.settings.route_scale;
    const float aux = slope != nullptr ? a.aux_weight * slope[e] - mean : 0;
    if (a.settings.score == RouterScore::kSoftmax) {
      return exp_approx(z - lse) * (aux + (z_slope - through_sum));
    }
    float d = 0;
    if (slope != nullptr) d = aux * share(z) * sigmoid(-scale * z) * scale;
    if (z_slope != 0.0f) d += z_slope * exp_approx(z - lse);
    return d;
  }
};

// One warp per token. Bound by memory. With switch the logits are read twice, the second time from
// L1 or L2; the chosen ones are computed again, so that the sum of both parts is rounded once.
template <typename T, int V>
__global__ __launch_bounds__(kWarps* kWarp) void router_dense_kernel(
    const __grid_constant__ RouterBackward<T> a) {
  const int64_t t = int64_t{blockIdx.x} * kWarps + threadIdx.y;
  if (t >= a.logits.dim[0]) return;
  const int experts = int(a.logits.dim[1]), k = int(a.expert.dim[1]);
  const bool is_sigmoid = a.settings.score == RouterScore::kSigmoid;
  const float* row = a.logits.row(t);
  const float lse = a.logsumexp.empty() ? 0 : a.logsumexp[t];
  const ChosenSlopes<T> slopes(a, t, slope_row(a, t), lse);

  DenseSlopes<T> dense{a, a.settings.aux == RouterAux::kSwitch ? slope_row(a, t) : nullptr, lse,
                       a.score_sum.empty() ? 1.0f : a.score_sum[t]};
  dense.z_slope = a.z_weight * 2 * lse / float(a.logits.dim[0]);
  if (!is_sigmoid) {
    float sum = 0;
    for (int i = lane(); i < k; i += kWarp) sum += slopes.u(i);
    dense.through_sum = warp_sum(sum);
  }
  const bool of_sum = !is_sigmoid || dense.score_sum > kSmallestSum;  // else the divisor is no sum
  if (dense.slope != nullptr && of_sum) {
    float dot = 0;
#pragma unroll 2
    for (int e = lane() * V; e < experts; e += kWarp * V) {
      const Vec<float, V> z = load_vec<V>(row + e), slope = load_vec<V>(dense.slope + e);
      for (int c = 0; c < V; ++c) dot += slope[c] * dense.share(z[c]);
    }
    dense.mean = a.aux_weight * warp_sum(dot);
  }

  T* dz = a.dlogits.row(t);
#pragma unroll 2
  for (int e = lane() * V; e < experts; e += kWarp * V) {
    const Vec<float, V> z = load_vec<V>(row + e);
    float d[V];
    for (int c = 0; c < V; ++c) d[c] = dense(e + c, z[c]);
    store_floats(dz + e, d);
  }
  sync_warp();  // all logits are written before the chosen ones
  for (int i = lane(); i < k; i += kWarp) {
    const int e = slopes.id[i];
    dz[e] = T(dense(e, row[e]) + slopes.u(i));
  }
}

template <typename T>
void launch_router_backward(Exec on, const RouterBackward<T>& a) {
  constexpr int kZeros = 16 / int(sizeof(T));  // elements per store
  const int64_t experts = a.logits.dim[1];
  const bool sparse = a.path == RouterPath::kAuto && router_backward_is_sparse(a);
  const unsigned blocks = unsigned(ceil_div(a.logits.dim[0], kWarps));
  const Launch shape{.name = sparse ? "router_backward_sparse" : "router_backward_dense",
                     .grid = {blocks},
                     .block = {kWarp, kWarps}};
  if (sparse) {
    const bool vectors = experts % kZeros == 0 && aligned16(a.dlogits.data);
    launch(on, shape, vectors ? router_sparse_kernel<T, kZeros> : router_sparse_kernel<T, 1>, a);
  } else {
    const bool vectors = experts % 4 == 0 && aligned16(a.dlogits.data) &&
                         aligned16(a.logits.data) && aligned16(a.aux_slope.data);
    launch(on, shape, vectors ? router_dense_kernel<T, 4> : router_dense_kernel<T, 1>, a);
  }
}

}  // namespace

void router_backward(Exec on, const RouterBackward<float>& a) {
  launch_router_backward(on, a);
}
void router_backward(Exec on, const RouterBackward<bf16>& a) {
  launch_router_backward(on, a);
}

}  // namespace assay::gpu
