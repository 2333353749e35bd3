// Section model: the shape of the network and its mixture of experts.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/bias_rate.h"
#include "engine/config/choice.h"
#include "engine/config/field_check.h"
#include "ops/router_choices.h"

namespace assay {

template <>
struct Choice<RouterScore> {
  static constexpr const char* kNames[] = {"sigmoid", "softmax"};
};

template <>
struct Choice<RouterAux> {
  static constexpr const char* kNames[] = {"none", "switch", "gates"};
};

template <>
struct Choice<AuxScope> {
  static constexpr const char* kNames[] = {"micro", "step", "sequence"};
};

template <>
struct Choice<BiasRule> {
  static constexpr const char* kNames[] = {"sign", "proportional"};
};

enum class AttentionGain { kOne, kDepth };
template <>
struct Choice<AttentionGain> {
  static constexpr const char* kNames[] = {"one", "depth"};
};

enum class InitRule { kDefault, kNmoe };
template <>
struct Choice<InitRule> {
  static constexpr const char* kNames[] = {"default", "nmoe"};
};

struct RouterConfig {
  RouterScore score = RouterScore::kSigmoid;
  double route_scale = 1.0;
  double gate_scale = 1.0;
  bool normalize_gates = true;
  BiasRate bias_rate = 1e-3;
  std::optional<double> bias_steps = {};   // with bias_rate auto; absent: kUsualBiasSteps
  std::optional<BiasRule> bias_rule = {};  // absent: sign
  bool bias_follows_lr = false;
  RouterAux aux = RouterAux::kSwitch;
  double aux_alpha = 0.01;
  AuxScope aux_scope = AuxScope::kMicro;
  double z_alpha = 0.0;

  static constexpr double kUsualBiasSteps = 100;
  double resolved_bias_steps() const { return bias_steps.value_or(kUsualBiasSteps); }
  BiasRule resolved_bias_rule() const { return bias_rule.value_or(BiasRule::kSign); }
};

template <typename V>
void visit(V& v, RouterConfig& c) {
  v("score", c.score, "score of an expert from its logit", any());
  v("route_scale", c.route_scale, "factor on the logit inside the sigmoid", positive());
  v("gate_scale", c.gate_scale, "factor on the gates", positive());
  v("normalize_gates", c.normalize_gates, "divide the chosen gates by their sum", any());
  v("bias_rate", c.bias_rate,
    "balancing: step of the selection bias per optimizer step; 0 = no bias; auto = from the "
    "router's lead",
    not_negative());
  v("bias_steps", c.bias_steps,
    "with bias_rate auto: steps within which the bias makes up a token's lead; absent = 100",
    at_least(1));
  v("bias_rule", c.bias_rule,
    "by the sign of an expert's excess load, or proportional to it; absent = sign", any());
  v("bias_follows_lr", c.bias_follows_lr, "bias_rate times the schedule's share of the peak lr",
    any());
  v("aux", c.aux, "balancing: auxiliary loss on the loads", any());
  v("aux_alpha", c.aux_alpha, "weight of aux", not_negative());
  v("aux_scope", c.aux_scope,
    "counts of the micro-batch, of the part of a step so far, or per sequence", any());
  v("z_alpha", c.z_alpha, "weight of mean logsumexp(logits)^2", not_negative());
}

struct MoeConfig {
  int64_t experts = 8;
  int64_t top_k = 2;
  int64_t shared = 0;
  int64_t expert_ffn = 256;
  int64_t first_dense_layers = 0;
  RouterConfig router;
};

template <typename V>
void visit(V& v, MoeConfig& c) {
  v("experts", c.experts, "routed experts per MoE layer (E)", between(1, 65536));
  v("top_k", c.top_k, "experts chosen per token (K)", between(1, 64));
  v("shared", c.shared, "shared experts, one ungated SwiGLU of width shared * expert_ffn",
    not_negative());
  v("expert_ffn", c.expert_ffn, "inner width of one expert (F)", at_least(1));
  v("first_dense_layers", c.first_dense_layers, "first blocks, which have a dense FFN of width ffn",
    not_negative());
  v.section("router", c.router, "scores, gates, balancing");
}

struct ModelConfig {
  int64_t hidden = 256;
  int64_t layers = 4;
  int64_t heads = 4;
  int64_t kv_heads = 0;
  int64_t head_dim = 0;
  int64_t ffn = 768;
  int64_t vocab_size = 8192;
  bool tie_embeddings = false;
  double rope_theta = 10000.0;
  double norm_eps = 1e-5;
  bool qk_norm = false;
  AttentionGain attention_gain = AttentionGain::kOne;
  double embed_gain = 1.0;
  double logit_gain = 1.0;
  InitRule init = InitRule::kDefault;
  double head_init = 1.0;
  std::optional<MoeConfig> moe;

  // The value in use: 0 selects the default.
  int64_t resolved_kv_heads() const { return kv_heads > 0 ? kv_heads : heads; }
  int64_t resolved_head_dim() const { return head_dim > 0 ? head_dim : hidden / heads; }

  // True if a block has a dense FFN, of width ffn.
  bool has_dense_block() const { return !moe || moe->first_dense_layers > 0; }
};

// The blocks from first_dense_layers on are MoE blocks; none in a dense model.
inline bool is_moe_block(const ModelConfig& model, int64_t layer) {
  return model.moe && layer >= model.moe->first_dense_layers;
}
inline int64_t moe_blocks(const ModelConfig& model) {
  return model.moe ? std::max<int64_t>(0, model.layers - model.moe->first_dense_layers) : 0;
}

template <typename V>
void visit(V& v, ModelConfig& c) {
  v("hidden", c.hidden, "model width (C)", at_least(1));
  v("layers", c.layers, "blocks (L)", at_least(1));
  v("heads", c.heads, "query heads (H)", at_least(1));
  v("kv_heads", c.kv_heads, "key-value heads; 0 = heads", not_negative());
  v("head_dim", c.head_dim, "head width (D): 32, 64 or 128; 0 = hidden / heads", not_negative());
  v("ffn", c.ffn, "inner width of a dense SwiGLU (F)", at_least(1));
  v("vocab_size", c.vocab_size, "vocabulary (V), padding included", at_least(2));
  v("tie_embeddings", c.tie_embeddings, "the head uses the embedding matrix", any());
  v("rope_theta", c.rope_theta, "base of the rotary frequencies", positive());
  v("norm_eps", c.norm_eps, "epsilon of every RMSNorm", positive());
  v("qk_norm", c.qk_norm, "RMSNorm over each head of q and k before RoPE", any());
  v("attention_gain", c.attention_gain,
    "factor on the attention branch: one, or depth = 1/sqrt(2L)", any());
  v("embed_gain", c.embed_gain, "factor on the embedding", positive());
  v("logit_gain", c.logit_gain, "factor on the logits", positive());
  v("init", c.init, "initial weights; nmoe also scales routed experts and router by depth", any());
  v("head_init", c.head_init,
    "standard deviation of the first logits of an untied head; s adds s^2 / 2 to the first loss",
    positive());
  v.section("moe", c.moe, "mixture of experts; absent = dense");
}

}  // namespace assay
