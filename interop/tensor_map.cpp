#include "interop/tensor_map.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "models/parameters/table.h"

namespace assay {
namespace {

class Mapping {
 public:
  Mapping(const ModelConfig& model, Family family) : m_(model), family_(family) {}

  std::vector<MappedTensor> all() {
    add("model.embed_tokens.weight", {m_.vocab_size, m_.hidden}, "embed.weight",
        {.gain = m_.embed_gain});
    for (int64_t l = 0; l < m_.layers; ++l) block(l);
    add("model.norm.weight", {m_.hidden}, "final.norm");
    if (!writes_tied(m_)) {
      add("lm_head.weight", {m_.vocab_size, m_.hidden},
          m_.tie_embeddings ? "embed.weight" : "head.weight", {.gain = m_.logit_gain});
    }
    return std::move(map_);
  }

 private:
  struct Part {
    int64_t begin = 0;
    double gain = 1;
    MappedTensor::Type type = MappedTensor::Type::kAsModel;
  };
  void add(const std::string& name, std::vector<int64_t> shape, const std::string& ours,
           const Part& part) {
    map_.push_back({.name = name,
                    .shape = std::move(shape),
                    .ours = ours,
                    .begin = part.begin,
                    .gain = part.gain,
                    .type = part.type});
  }
  void add(const std::string& name, std::vector<int64_t> shape, const std::string& ours) {
    add(name, std::move(shape), ours, Part());
  }

  void block(int64_t l) {
    const std::string theirs = "model.layers." + std::to_string(l) + ".";
    const std::string ours = "blocks." + std::to_string(l) + ".";
    add(theirs + "input_layernorm.weight", {m_.hidden}, ours + "attn.norm");
    attention(theirs + "self_attn.", ours + "attn.");
    add(theirs + "post_attention_layernorm.weight", {m_.hidden}, ours + "ffn.norm");
    if (!is_moe_block(m_, l)) {
      swiglu(theirs + "mlp.", ours + "ffn.", m_.ffn);
    } else if (family_ == Family::kMixtral) {
      mixtral(theirs + "block_sparse_moe.", ours + "moe.");
    } else if (family_ == Family::kQwen3Moe) {
      qwen3_moe(theirs + "mlp.", ours + "moe.");
    } else {
      glm4_moe(theirs + "mlp.", ours + "moe.");
    }
  }

  void attention(const std::string& theirs, const std::string& ours) {
    const int64_t width = m_.resolved_head_dim(), q = m_.heads * width;
    const int64_t kv = m_.resolved_kv_heads() * width;
    const std::string qkv = ours + "qkv";
    add(theirs + "q_proj.weight", {q, m_.hidden}, qkv);
    add(theirs + "k_proj.weight", {kv, m_.hidden}, qkv, {.begin = q * m_.hidden});
    add(theirs + "v_proj.weight", {kv, m_.hidden}, qkv, {.begin = (q + kv) * m_.hidden});
    if (m_.qk_norm) {
      add(theirs + "q_norm.weight", {width}, ours + "q_norm");
      add(theirs + "k_norm.weight", {width}, ours + "k_norm");
    }
    const double gain =
        m_.attention_gain == AttentionGain::kDepth ? 1.0 / std::sqrt(2.0 * double(m_.layers)) : 1.0;
    add(theirs + "o_proj.weight", {m_.hidden, q}, ours + "out", {.gain = gain});
  }

  void swiglu(const std::string& theirs, const std::string& ours, int64_t width) {
    add(theirs + "gate_proj.weight", {width, m_.hidden}, ours + "gate_up");
    add(theirs + "up_proj.weight", {width, m_.hidden}, ours + "gate_up",
        {.begin = width * m_.hidden});
    add(theirs + "down_proj.weight", {m_.hidden, width}, ours + "down");
  }

  // names: of the gate, the up and the down projection.
  void experts(const std::string& theirs, const std::string& ours, const char* const (&names)[3],
               double down_gain) {
    const int64_t width = m_.moe->expert_ffn, matrix = width * m_.hidden;
    for (int64_t e = 0; e < m_.moe->experts; ++e) {
      const std::string expert = theirs + "experts." + std::to_string(e) + ".";
      add(expert + names[0] + ".weight", {width, m_.hidden}, ours + "gate_up",
          {.begin = 2 * e * matrix});
      add(expert + names[1] + ".weight", {width, m_.hidden}, ours + "gate_up",
          {.begin = (2 * e + 1) * matrix});
      add(expert + names[2] + ".weight", {m_.hidden, width}, ours + "down",
          {.begin = e * matrix, .gain = down_gain});
    }
  }

  void mixtral(const std::string& theirs, const std::string& ours) {
    add(theirs + "gate.weight", {m_.moe->experts, m_.hidden}, ours + "router");
    experts(theirs, ours, {"w1", "w3", "w2"}, m_.moe->router.gate_scale);
  }

  void qwen3_moe(const std::string& theirs, const std::string& ours) {
    add(theirs + "gate.weight", {m_.moe->experts, m_.hidden}, ours + "router");
    experts(theirs, ours, {"gate_proj", "up_proj", "down_proj"}, m_.moe->router.gate_scale);
  }

  void glm4_moe(const std::string& theirs, const std::string& ours) {
    const MoeConfig& moe = *m_.moe;
    add(theirs + "gate.weight", {moe.experts, m_.hidden}, ours + "router",
        {.gain = moe.router.route_scale});
    // With a rate of 0 the router ignores its bias.
    add(theirs + "gate.e_score_correction_bias", {moe.experts}, ours + "bias",
        {.gain = moe.router.bias_rate.on() ? 1.0 : 0.0, .type = MappedTensor::Type::kF32});
    experts(theirs, ours, {"gate_proj", "up_proj", "down_proj"}, 1.0);
    // Without shared experts the tensors exist and are empty.
    swiglu(theirs + "shared_experts.", ours + "shared.", moe.shared * moe.expert_ffn);
  }

  const ModelConfig& m_;
  const Family family_;
  std::vector<MappedTensor> map_;
};

}  // namespace

int64_t MappedTensor::size() const {
  int64_t n = 1;
  for (const int64_t d : shape) n *= d;
  return n;
}

std::vector<MappedTensor> tensor_map(const ModelConfig& model, Family family) {
  return Mapping(model, family).all();
}

std::string uncovered_parameter(const ModelConfig& model, const std::vector<MappedTensor>& map) {
  std::map<std::string, std::vector<std::pair<int64_t, int64_t>>> parts;  // from, to
  for (const MappedTensor& t : map) parts[t.ours].emplace_back(t.begin, t.begin + t.size());
  for (const ParameterSpec& spec : parameter_table(model)) {
    if (!spec.trained()) continue;
    std::vector<std::pair<int64_t, int64_t>>& of_spec = parts[spec.name];
    std::sort(of_spec.begin(), of_spec.end());
    int64_t covered = 0;
    for (const auto& [from, to] : of_spec) {
      if (from <= covered) covered = std::max(covered, to);
    }
    if (covered < spec.size()) return spec.name;
  }
  return "";
}

int64_t mapped_tensors(const ModelConfig& m, Family family) {
  const int64_t attention = 6 + (m.qk_norm ? 2 : 0), sparse = moe_blocks(m);
  int64_t count = 2 + (writes_tied(m) ? 0 : 1) + m.layers * attention + (m.layers - sparse) * 3;
  if (sparse > 0) {
    const int64_t beside = family == Family::kGlm4Moe ? 2 + 3 : 1;  // the experts
    count += sparse * (3 * m.moe->experts + beside);
  }
  return count;
}

}  // namespace assay
