// Backward of ops/router.h. u_i is the gradient of a chosen logit through its own score alone:
//
//   normalised   u_i = ds_i ghat_i (dghat_i - <ghat, dghat>)
//   else         u_i = ds_i s_i gate_scale dgate_i
//   ds_i         route_scale (1 - s_i) for sigmoid, 1 for softmax
//
// For sigmoid and for normalised softmax dz = u; for softmax in general dz_e = u_e - p_e sum u.
// switch and z add to all e: q_e (c_e - <c, q>) * ds_e, with c = aux_weight * aux_slope and q the
// shares, and z_weight * 2 / N * logsumexp * softmax(z)_e.
#include <cmath>
#include <cstring>

#include "base/bf16.h"
#include "base/check.h"
#include "cuda/profile.h"
#include "ops/router.h"
#include "ops/router/cpu_row.h"

namespace assay {

using namespace router_row;

namespace {

template <typename T>
const float* slope_row(const RouterBackward<T>& a, int64_t t) {
  if (a.settings.aux == RouterAux::kNone || a.aux_weight == 0.0f) return nullptr;
  const int64_t rows = a.logits.dim[0] / a.aux_slope.dim[0];
  return a.aux_slope.row(t / rows);
}

// u of the K chosen experts.
template <typename T>
void chosen_slopes(const RouterBackward<T>& a, int64_t t, float* u) {
  const RouterSettings& s = a.settings;
  const int64_t k = a.expert.dim[1];
  const float* row = a.logits.row(t);
  const int32_t* expert = a.expert.row(t);
  const float* dgate = a.dgate.row(t);
  const float* slope = s.aux == RouterAux::kGates ? slope_row(a, t) : nullptr;
  const bool is_sigmoid = s.score == RouterScore::kSigmoid;
  const bool normalize = s.normalize == NormalizeGates::kYes;
  const Chosen chosen(row, expert, k, s);

  float dghat[kMaxTopK];
  float mean = 0;
  for (int64_t i = 0; i < k; ++i) {
    dghat[i] = normalize ? s.gate_scale * dgate[i] : 0.0f;
    if (slope != nullptr) dghat[i] += a.aux_weight * slope[expert[i]];
    mean += chosen.ghat[i] * dghat[i];
  }
  if (chosen.clamped) mean = 0;
  for (int64_t i = 0; i < k; ++i) {
    u[i] = chosen.ghat[i] * (dghat[i] - mean);
    if (!normalize) {
      const float score = is_sigmoid ? chosen.score[i] : exp_fast(row[expert[i]] - a.logsumexp[t]);
      u[i] += score * s.gate_scale * dgate[i];
    }
    if (is_sigmoid) u[i] *= s.route_scale * chosen.rest[i];
  }
}

template <typename T>
void sparse_token(const RouterBackward<T>& a, int64_t t) {
  const int64_t k = a.expert.dim[1];
  float u[kMaxTopK];
  chosen_slopes(a, t, u);
  if (!a.dchosen.empty()) std::copy(u, u + k, a.dchosen.row(t));
  if (a.dlogits.empty()) return;
  T* dz = a.dlogits.row(t);
  std::memset(static_cast<void*>(dz), 0, size_t(a.dlogits.dim[1]) * sizeof(T));
  const int32_t* expert = a.expert.row(t);
  for (int64_t i = 0; i < k; ++i) dz[expert[i]] = T(u[i]);
}

// <c, q> of one row, which the normalisation of the shares subtracts from every slope.
template <typename T>
float mean_slope(const RouterBackward<T>& a, int64_t t, const float* slope) {
  const bool is_sigmoid = a.settings.score == RouterScore::kSigmoid;
  if (is_sigmoid && a.score_sum[t] <= kSmallestSum) return 0;  // a divisor that is no sum
  const float scale = a.settings.route_scale, inverse = is_sigmoid ? 1.0f / a.score_sum[t] : 0;
  const float lse = is_sigmoid ? 0 : a.logsumexp[t];
  f32x16 dot{};
  for_vectors(a.logits.row(t), a.logits.dim[1], [&](int64_t e, int64_t n, f32x16 z) {
    const f32x16 q = is_sigmoid ? sigmoid(scale * z) * inverse : exp_fast(z - lse);
    dot += beside(slope, e, n) * q;
  });
  return a.aux_weight * horizontal_sum(dot);
}

template <typename T>
void dense_token(const RouterBackward<T>& a, int64_t t) {
  const int64_t k = a.expert.dim[1];
  const int32_t* expert = a.expert.row(t);
  const float* row = a.logits.row(t);
  const bool is_sigmoid = a.settings.score == RouterScore::kSigmoid;
  const float* slope = a.settings.aux == RouterAux::kSwitch ? slope_row(a, t) : nullptr;
  const float scale = a.settings.route_scale;
  const float lse = a.logsumexp.empty() ? 0 : a.logsumexp[t];
  const float z_slope = a.z_weight * 2 * lse / float(a.logits.dim[0]);
  const float mean = slope != nullptr ? mean_slope(a, t, slope) : 0;

  float u[kMaxTopK];
  chosen_slopes(a, t, u);
  float through_sum = 0;  // softmax: every logit lowers the others' probabilities
  for (int64_t i = 0; i < k; ++i) through_sum += u[i];
  const auto aux_slope = [&](int64_t e, int64_t n) {
    return slope != nullptr ? a.aux_weight * beside(slope, e, n) - mean : f32x16{};
  };
  const float q_scale = is_sigmoid && slope != nullptr ? scale / a.score_sum[t] : 0;
  const auto of_all = [&](int64_t e, int64_t n, f32x16 z) {
    if (!is_sigmoid) return exp_fast(z - lse) * (aux_slope(e, n) + (z_slope - through_sum));
    f32x16 d{};
    if (slope != nullptr) d = aux_slope(e, n) * sigmoid(scale * z) * sigmoid(-scale * z) * q_scale;
    if (z_slope != 0.0f) d += z_slope * exp_fast(z - lse);
    return d;
  };

  T* dz = a.dlogits.row(t);
  for_vectors(row, a.logits.dim[1], [&](int64_t e, int64_t n, f32x16 z) {
    const f32x16 d = of_all(e, n, z);
    n == kVector ? store(dz + e, d) : store_part(dz + e, n, d);
  });
  // The chosen logits are computed again, so that the sum of both parts is rounded once.
  for (int64_t i = 0; i < k; ++i) {
    const int64_t e = expert[i] / kVector * kVector,
                  n = std::min<int64_t>(kVector, a.logits.dim[1] - e);
    const f32x16 z = n == kVector ? load(row + e) : load_padded(row + e, n, -kInfinity);
    dz[expert[i]] = T(of_all(e, n, z)[expert[i] % kVector] + u[i]);
  }
}

}  // namespace

namespace cpu {

template <typename T>
void router_backward(Exec on, const RouterBackward<T>& a) {
  const bool sparse = a.path == RouterPath::kAuto && router_backward_is_sparse(a);
  parallel_ranges(on, a.logits.dim[0], kPieceRows, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) sparse ? sparse_token(a, t) : dense_token(a, t);
  });
}

}  // namespace cpu

template <typename T>
void router_backward(Exec on, const RouterBackward<T>& a) {
  const ProfileScope timed(on, "router_backward", router_backward_cost(a));
  const int64_t tokens = a.logits.dim[0], experts = a.logits.dim[1], k = a.expert.dim[1];
  const RouterSettings& s = a.settings;
  CHECK(a.expert.dim[0] == tokens && a.dgate.dim[0] == tokens && a.dgate.dim[1] == k &&
            k <= experts && k <= kMaxTopK,
        "router_backward: logits (%ld, %ld), expert (%ld, %ld), dgate (%ld, %ld)", long(tokens),
        long(experts), long(a.expert.dim[0]), long(k), long(a.dgate.dim[0]), long(a.dgate.dim[1]));
  const bool dense = a.path == RouterPath::kDense || !router_backward_is_sparse(a);
  CHECK(a.dlogits.empty() ? !dense && !a.dchosen.empty() : a.dlogits.size() == a.logits.size(),
        "router_backward: dlogits (%ld, %ld) of logits (%ld, %ld), the %s path",
        long(a.dlogits.dim[0]), long(a.dlogits.dim[1]), long(tokens), long(experts),
        dense ? "dense" : "sparse");
  CHECK(a.dchosen.empty() || (!dense && a.dchosen.dim[0] == tokens && a.dchosen.dim[1] == k),
        "router_backward: dchosen (%ld, %ld) of expert (%ld, %ld), the %s path",
        long(a.dchosen.dim[0]), long(a.dchosen.dim[1]), long(tokens), long(k),
        dense ? "dense" : "sparse");
  const bool is_sigmoid = s.score == RouterScore::kSigmoid;
  const bool aux = s.aux != RouterAux::kNone && a.aux_weight != 0.0f;
  CHECK(!((dense && !is_sigmoid) || a.z_weight != 0.0f) || a.logsumexp.dim[0] == tokens,
        "router_backward: logsumexp (%ld) of %ld tokens", long(a.logsumexp.dim[0]), long(tokens));
  CHECK(!(aux && is_sigmoid && s.aux == RouterAux::kSwitch) || a.score_sum.dim[0] == tokens,
        "router_backward: sigmoid with switch: score_sum (%ld) of %ld tokens",
        long(a.score_sum.dim[0]), long(tokens));
  CHECK(!aux || (a.aux_slope.dim[0] == router_groups(tokens, s) && a.aux_slope.dim[1] == experts),
        "router_backward: aux_slope (%ld, %ld), %ld groups of %ld experts",
        long(a.aux_slope.dim[0]), long(a.aux_slope.dim[1]), long(router_groups(tokens, s)),
        long(experts));
  if (on.gpu) return gpu::router_backward(on, a);
  cpu::router_backward(on, a);
}

template void router_backward<float>(Exec, const RouterBackward<float>&);
template void router_backward<bf16>(Exec, const RouterBackward<bf16>&);

}  // namespace assay
