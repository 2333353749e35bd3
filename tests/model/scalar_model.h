// The whole decoder in loops over one scalar type, the reference for the fast model's values and
// gradients. It shares the configuration and the parameter names with the fast model, but no code.
//
//   scalar_losses<double>     the value
//   scalar_gradient           every parameter's derivative, by a tape over the same loops
//   scalar_losses<Complex>    derivatives by complex step, which prove the tape
//                             (tests/model/test_scalar_model.cpp)
#pragma once

#include <map>
#include <string>

#include "models/parameters/table.h"
#include "tests/model/scalar_router.h"

namespace assay::ref {

// Values by parameter_table() name, row-major, including the router biases.
template <typename S>
using ScalarParameters = std::map<std::string, std::vector<S>>;

struct ScalarBatch {
  std::vector<int> tokens;   // (B T)
  std::vector<int> targets;  // (B T)
  size_t sequence = 0;       // T
  int mask_id = -1;          // targets equal to it, and negative ones, do not count
};

template <typename S>
struct ScalarLosses {
  S cross_entropy = S(0.0);  // mean nats over the counted targets
  S aux = S(0.0);            // mean over MoE blocks, without aux_alpha
  S z = S(0.0);              // mean over MoE blocks, without z_alpha
  S total = S(0.0);          // cross_entropy + aux_alpha aux + z_alpha z
};

template <typename S>
Rows<S> scalar_attention_branch(const ModelConfig& c, const ScalarParameters<S>& p,
                                const std::string& at, const Rows<S>& x, size_t sequence) {
  const HeadShape shape = {static_cast<size_t>(c.heads), static_cast<size_t>(c.resolved_kv_heads()),
                           static_cast<size_t>(c.resolved_head_dim())};
  const size_t rows = (shape.heads + 2 * shape.kv_heads) * shape.width;
  Rows<S> qkv = scalar_linear(scalar_rmsnorm(x, p.at(at + "attn.norm"), c.norm_eps),
                              p.at(at + "attn.qkv"), rows);
  for (size_t n = 0; n < qkv.size(); ++n)
    for (size_t h = 0; h < shape.heads + shape.kv_heads; ++h) {
      const std::string norm = h < shape.heads ? "attn.q_norm" : "attn.k_norm";
      if (c.qk_norm) scalar_rmsnorm(qkv[n], h * shape.width, p.at(at + norm), c.norm_eps);
      scalar_rope(qkv[n], h * shape.width, shape.width, n % sequence, c.rope_theta);
    }
  const double gain =
      c.attention_gain == AttentionGain::kDepth ? 1 / std::sqrt(2.0 * double(c.layers)) : 1.0;
  Rows<S> out = scalar_linear(scalar_attention(qkv, shape, sequence), p.at(at + "attn.out"),
                              static_cast<size_t>(c.hidden));
  for (std::vector<S>& row : out)
    for (S& v : row) v *= S(gain);
  return out;
}

// The block's MoE output; adds the block's aux and z to `losses`.
template <typename S>
Rows<S> scalar_moe(const MoeConfig& m, const ScalarParameters<S>& p, const std::string& at,
                   const Rows<S>& x, size_t sequence, ScalarLosses<S>& losses) {
  const size_t width = x[0].size(), ffn = static_cast<size_t>(m.expert_ffn);
  const ScalarRouting<S> routing =
      scalar_router(x, p.at(at + "moe.router"), p.at(at + "moe.bias"), m, sequence);
  losses.aux += routing.aux;
  losses.z += routing.z;

  Rows<S> y(x.size(), std::vector<S>(width, S(0.0)));
  for (size_t n = 0; n < x.size(); ++n)
    for (size_t k = 0; k < routing.expert[n].size(); ++k) {
      const size_t e = routing.expert[n][k];
      const Rows<S> out = scalar_swiglu({x[n]}, p.at(at + "moe.gate_up"), p.at(at + "moe.down"),
                                        ffn, e * 2 * ffn * width, e * width * ffn);
      for (size_t c = 0; c < width; ++c) y[n][c] += routing.gate[n][k] * out[0][c];
    }
  if (m.shared == 0) return y;
  const Rows<S> shared = scalar_swiglu(x, p.at(at + "moe.shared.gate_up"),
                                       p.at(at + "moe.shared.down"), ffn * size_t(m.shared));
  for (size_t n = 0; n < x.size(); ++n)
    for (size_t c = 0; c < width; ++c) y[n][c] += shared[n][c];
  return y;
}

template <typename S>
void scalar_add(Rows<S>& x, const Rows<S>& branch) {
  for (size_t n = 0; n < x.size(); ++n)
    for (size_t c = 0; c < x[n].size(); ++c) x[n][c] += branch[n][c];
}

template <typename S>
S scalar_cross_entropy(const ModelConfig& c, const std::vector<S>& head, const Rows<S>& x,
                       const ScalarBatch& batch) {
  Rows<S> logits = scalar_linear(x, head, static_cast<size_t>(c.vocab_size));
  S sum(0.0);
  double counted = 0;
  for (size_t n = 0; n < x.size(); ++n) {
    const int target = batch.targets[n];
    if (target < 0 || target == batch.mask_id) continue;
    for (S& v : logits[n]) v *= S(c.logit_gain);
    sum += scalar_logsumexp(logits[n]) - logits[n][static_cast<size_t>(target)];
    counted += 1;
  }
  return sum / S(counted);
}

template <typename S>
ScalarLosses<S> scalar_losses(const ModelConfig& c, const ScalarParameters<S>& p,
                              const ScalarBatch& batch) {
  const size_t width = static_cast<size_t>(c.hidden);
  const std::vector<S>& embedding = p.at("embed.weight");
  Rows<S> x;
  for (const int token : batch.tokens) {
    std::vector<S> row(width);
    for (size_t i = 0; i < width; ++i)
      row[i] = S(c.embed_gain) * embedding[static_cast<size_t>(token) * width + i];
    x.push_back(row);
  }

  ScalarLosses<S> losses;
  for (int64_t l = 0; l < c.layers; ++l) {
    const std::string at = "blocks." + std::to_string(l) + ".";
    scalar_add(x, scalar_attention_branch(c, p, at, x, batch.sequence));
    const Rows<S> normed = scalar_rmsnorm(x, p.at(at + "ffn.norm"), c.norm_eps);
    if (c.moe && l >= c.moe->first_dense_layers)
      scalar_add(x, scalar_moe(*c.moe, p, at, normed, batch.sequence, losses));
    else
      scalar_add(x, scalar_swiglu(normed, p.at(at + "ffn.gate_up"), p.at(at + "ffn.down"),
                                  static_cast<size_t>(c.ffn)));
  }
  const Rows<S> last = scalar_rmsnorm(x, p.at("final.norm"), c.norm_eps);
  losses.cross_entropy =
      scalar_cross_entropy(c, c.tie_embeddings ? embedding : p.at("head.weight"), last, batch);
  losses.total = losses.cross_entropy;
  const int64_t sparse = moe_blocks(c);
  if (sparse == 0) return losses;
  losses.aux /= S(static_cast<double>(sparse));
  losses.z /= S(static_cast<double>(sparse));
  losses.total += S(c.moe->router.aux_alpha) * losses.aux + S(c.moe->router.z_alpha) * losses.z;
  return losses;
}

// d total / d parameter for every name in p; zeros for buffers.
inline ScalarParameters<double> scalar_gradient(const ModelConfig& c,
                                                const ScalarParameters<double>& p,
                                                const ScalarBatch& batch) {
  Tape& tape = Tape::current();
  tape.clear();
  ScalarParameters<Tracked> leaves;
  for (const auto& [name, values] : p)
    for (const double v : values) leaves[name].push_back({v, tape.leaf()});
  const ScalarLosses<Tracked> losses = scalar_losses(c, leaves, batch);
  const std::vector<double> d = tape.derivatives(losses.total.node);
  ScalarParameters<double> gradient;
  for (const auto& [name, values] : leaves)
    for (const Tracked& v : values) gradient[name].push_back(d[static_cast<size_t>(v.node)]);
  tape.clear();
  return gradient;
}

// Parameters drawn like initialise(), but with larger deviations: at the usual 0.02 the gradients
// through two layers are too small for a test. Norm weights differ from 1 and biases from 0. All
// are rounded to float.
inline ScalarParameters<double> scalar_parameters(const ModelConfig& c, uint64_t seed) {
  ScalarParameters<double> p;
  for (const ParameterSpec& spec : parameter_table(c)) {
    ParameterSpec wide = spec;
    wide.init = Init::kNormal;
    wide.std = spec.role == Role::kBuffer ? 0.02 : spec.init == Init::kOne ? 0.2 : 0.25;
    std::vector<float> drawn(static_cast<size_t>(spec.size()));
    initialise({.threads = 1}, wide, seed, {drawn.data(), {spec.size()}});
    for (const float v : drawn)
      p[spec.name].push_back(spec.init == Init::kOne ? static_cast<double>(1.0f + v) : v);
  }
  return p;
}

}  // namespace assay::ref
