#include "interop/model_json.h"

#include <algorithm>
#include <vector>

#include "base/check.h"
#include "interop/json_fields.h"

namespace assay {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

// Whether a class always has norms of queries and keys.
bool norms_heads(Family family) {
  return family == Family::kQwen3 || family == Family::kQwen3Moe;
}

// Where the class has such a field. Those of Qwen have a switch for it.
void add_window(ordered_json& j, Family family, const ModelFacts& facts) {
  if (family != Family::kMixtral && !norms_heads(family)) return;
  j["sliding_window"] = facts.window;
  if (!norms_heads(family)) return;
  j["use_sliding_window"] = true;
  if (facts.full_layers) j["max_window_layers"] = *facts.full_layers;
}

void add_moe(ordered_json& j, const ModelConfig& m, Family family) {
  const MoeConfig& moe = *m.moe;
  j["num_experts_per_tok"] = moe.top_k;
  if (family == Family::kMixtral) {
    j["num_local_experts"] = moe.experts;
    j["intermediate_size"] = moe.expert_ffn;
    j["output_router_logits"] = false;
    j["router_aux_loss_coef"] = 0.0;
    j["router_jitter_noise"] = 0.0;
    j["sliding_window"] = nullptr;
    return;
  }
  if (family == Family::kQwen3Moe) {
    j["num_experts"] = moe.experts;
    j["moe_intermediate_size"] = moe.expert_ffn;
    j["norm_topk_prob"] = moe.router.normalize_gates;
    j["decoder_sparse_step"] = 1;
    j["mlp_only_layers"] = json::array();
    for (int64_t l = 0; l < moe.first_dense_layers; ++l) j["mlp_only_layers"].push_back(l);
    j["output_router_logits"] = false;
    j["router_aux_loss_coef"] = 0.0;
    j["use_sliding_window"] = false;
    j["sliding_window"] = nullptr;
    return;
  }
  j["n_routed_experts"] = moe.experts;
  j["n_shared_experts"] = moe.shared;
  j["moe_intermediate_size"] = moe.expert_ffn;
  j["first_k_dense_replace"] = moe.first_dense_layers;
  j["routed_scaling_factor"] = moe.router.gate_scale;
  j["norm_topk_prob"] = moe.router.normalize_gates;
  j["n_group"] = 1;
  j["topk_group"] = 1;
  j["partial_rotary_factor"] = 1.0;
  j["use_qk_norm"] = m.qk_norm;
  j["num_nextn_predict_layers"] = 0;  // absent, transformers 5 takes it for 1
}

// The family of `architectures` and `model_type`, which must agree if both are given.
Family read_family(const JsonFields& fields) {
  std::string known;
  for (const FamilyName& name : families()) {
    known += (known.empty() ? "" : ", ") + std::string(name.architecture);
  }
  const std::string hint = "assay imports " + known;
  const json named = fields.has("architectures") ? fields.all()["architectures"] : json();
  const bool one = named.is_array() && named.size() == 1 && named[0].is_string();
  if (!named.is_null() && !one) {
    throw UserError(fields.about("architectures is not a list with the name of one class"), hint);
  }
  const std::string type = fields.text_or("model_type", "");
  const std::string architecture = one ? named[0].get<std::string>() : "";
  for (const FamilyName& name : families()) {
    if (architecture.empty() ? type != name.model_type : architecture != name.architecture) {
      continue;
    }
    if (!type.empty() && type != name.model_type) {
      throw UserError(fields.about("architectures is " + architecture + ", but model_type is " +
                                   type + " and not " + name.model_type),
                      kConfigJsonHint);
    }
    return name.family;
  }
  const std::string what = architecture.empty() ? "model_type " + type : architecture;
  throw UserError(
      fields.about(architecture.empty() && type.empty() ? "has neither architectures nor model_type"
                                                        : "is of the unknown family " + what),
      hint);
}

// Fields that change the computation must have the one value that is supported.
class OnlyValues {
 public:
  explicit OnlyValues(const JsonFields& fields) : fields_(fields) {}
  void off(const char* key) const {
    if (fields_.flag_or(key, false)) refuse(key, "biases are not supported");
  }
  void absent(const char* key, const char* why) const {
    if (fields_.has(key)) refuse(key, why);
  }
  void one(const char* key, const char* why) const {
    if (fields_.optional_count(key).value_or(1) != 1) refuse(key, why);
  }
  [[noreturn]] void refuse(const char* key, const std::string& why) const {
    const json& all = fields_.all();
    const std::string value = all.contains(key) ? shown(all[key]) : "absent";
    throw UserError(fields_.about(fields_.name_of(key) + " is " + value + ": " + why),
                    "such a model cannot be imported; docs/interop.md lists what can");
  }

 private:
  const JsonFields& fields_;
};

// Where a file has both keys, versions of transformers read one or the other.
void require_usual_frequencies(const JsonFields& rope) {
  for (const char* key : {"rope_type", "type"}) {
    if (rope.text_or(key, "default") == "default") continue;
    OnlyValues(rope).refuse(key, "scaled frequencies are not supported");
  }
  // Versions of transformers refuse or ignore a factor without a type.
  if (rope.has("factor") && !rope.has("rope_type") && !rope.has("type"))
    OnlyValues(rope).refuse("factor", "scaled frequencies are not supported");
}

// In rope_scaling and rope_parameters transformers 5 reads rotary fields instead of those beside
// them, which are all that versions before it read: they must agree.
void require_agreement(const JsonFields& rope, const std::string& name, const char* key,
                       double beside) {
  if (!rope.has(key) || rope.positive(key) == beside) return;
  throw UserError(
      rope.about(strprintf("%s is %s, but outside of %s %s is %.10g", rope.name_of(key).c_str(),
                           shown(rope.all()[key]).c_str(), name.c_str(), key, beside)),
      "versions of transformers read one or the other: write the value that the model was trained "
      "with in both places");
}

// transformers 5 keeps rotary fields in rope_parameters, which it reads if there is no
// rope_scaling; older ones keep them beside the others.
void read_rope(const JsonFields& fields, Family family, ModelConfig& m) {
  const std::optional<JsonFields> parameters = fields.object("rope_parameters");
  const JsonFields inside = parameters && !fields.has("rope_scaling") ? *parameters : fields;
  const auto where = [&](const char* key) { return inside.has(key) ? inside : fields; };
  const char* const objects[] = {"rope_scaling", "rope_parameters"};
  for (const char* name : objects) {
    if (const auto rope = fields.object(name)) require_usual_frequencies(*rope);
  }
  // Llama's class has a default, on which older files rely.
  const char* const theta = "rope_theta";
  m.rope_theta = family == Family::kLlama ? where(theta).positive_or(theta, 10000)
                                          : where(theta).positive(theta);
  const char* const part = "partial_rotary_factor";
  const double usual = family == Family::kGlm4Moe ? 0.5 : 1;
  if (where(part).positive_or(part, usual) != 1) {
    OnlyValues(where(part)).refuse(part, "positions must rotate whole heads, not a part of each");
  }
  for (const char* name : objects) {
    const auto rope = fields.object(name);
    if (!rope) continue;
    require_agreement(*rope, name, theta, fields.positive_or(theta, m.rope_theta));
    require_agreement(*rope, name, part, fields.positive_or(part, 1));
  }
}

void read_attention(const JsonFields& fields, Family family, ModelConfig& m) {
  m.hidden = fields.count("hidden_size");
  m.layers = fields.count("num_hidden_layers");
  m.heads = fields.count("num_attention_heads");
  const std::optional<int64_t> kv_heads = fields.optional_count("num_key_value_heads");
  m.kv_heads = kv_heads || family == Family::kLlama ? kv_heads.value_or(m.heads)
                                                    : fields.count("num_key_value_heads");
  if (m.heads % m.kv_heads != 0) {
    throw UserError(fields.about(strprintf("num_key_value_heads %ld does not divide "
                                           "num_attention_heads %ld",
                                           long(m.kv_heads), long(m.heads))),
                    "every key-value head serves the same number of query heads");
  }
  const std::optional<int64_t> width = fields.optional_count("head_dim");
  if (!width && m.hidden % m.heads != 0) {
    throw UserError(
        fields.about(strprintf("num_attention_heads %ld does not divide hidden_size %ld, and there "
                               "is no head_dim",
                               long(m.heads), long(m.hidden))),
        kConfigJsonHint);
  }
  m.head_dim = width.value_or(m.hidden / m.heads);
  if (m.head_dim != 32 && m.head_dim != 64 && m.head_dim != 128) {
    throw UserError(fields.about(strprintf("heads are %ld wide (%s)", long(m.head_dim),
                                           width ? "head_dim" : "hidden_size / heads")),
                    "assay supports heads of 32, 64 or 128");
  }
  m.vocab_size = fields.count("vocab_size", 2);
  m.norm_eps = fields.positive("rms_norm_eps");
  m.tie_embeddings = fields.flag_or("tie_word_embeddings", false);
  m.qk_norm =
      norms_heads(family) || (family == Family::kGlm4Moe && fields.flag_or("use_qk_norm", false));
}

// The sliding window; 0 if there is none. One at least as long as the model's context has no effect
// within it and is accepted.
int64_t read_window(const JsonFields& fields, Family family) {
  const std::optional<int64_t> window = fields.optional_count("sliding_window");
  // Classes of Qwen have it off if the file does not say.
  if (!window || !fields.flag_or("use_sliding_window", !norms_heads(family))) return 0;
  if (*window < fields.count("max_position_embeddings")) {
    OnlyValues(fields).refuse("sliding_window", "sliding windows are not supported");
  }
  return *window;
}

void read_mixtral(const JsonFields& fields, ModelConfig& m) {
  MoeConfig& moe = m.moe.emplace();
  moe.experts = fields.count("num_local_experts");
  moe.top_k = fields.count("num_experts_per_tok");
  moe.expert_ffn = fields.count("intermediate_size");
  moe.router.score = RouterScore::kSoftmax;
  moe.router.bias_rate = 0;  // the class has no selection bias
  m.ffn = moe.expert_ffn;    // used by no block
}

// otherwise: what the class does if the file does not say.
bool read_normalized(const JsonFields& fields, bool otherwise) {
  const char* const key = "norm_topk_prob";
  if (fields.all().contains(key) && !fields.has(key)) {
    throw UserError(fields.about(std::string(key) + " is null, expected true or false"),
                    "transformers 4 takes null for false, and 5 refuses it: write the value that "
                    "the model was trained with");
  }
  return fields.flag_or(key, otherwise);
}

// How many blocks at the beginning have no experts.
int64_t read_dense_blocks(const JsonFields& fields, int64_t layers) {
  const OnlyValues only(fields);
  const char* const key = "mlp_only_layers";
  const char* const why = "only the first blocks may be dense, each of them once";
  if (!fields.has(key)) return 0;
  const json& listed = fields.all()[key];
  if (!listed.is_array()) only.refuse(key, "expected a list of blocks");
  std::vector<uint64_t> dense;
  for (const json& block : listed) {
    if (!block.is_number_unsigned()) only.refuse(key, why);
    dense.push_back(block.get<uint64_t>());
  }
  std::sort(dense.begin(), dense.end());
  for (size_t i = 0; i < dense.size(); ++i) {
    if (dense[i] != i || dense[i] >= uint64_t(layers)) only.refuse(key, why);
  }
  return int64_t(dense.size());
}

// transformers 4 writes num_experts, 5 writes num_local_experts and reads both.
int64_t read_qwen3_experts(const JsonFields& fields) {
  const char *const older = "num_experts", *const newer = "num_local_experts";
  if (!fields.has(newer)) return fields.count(older);
  const int64_t experts = fields.count(newer);
  if (fields.has(older) && fields.count(older) != experts) {
    throw UserError(fields.about(strprintf("%s is %ld, but %s is %ld", older,
                                           long(fields.count(older)), newer, long(experts))),
                    "versions of transformers read one or the other: write the number that the "
                    "model has in both places");
  }
  return experts;
}

void read_qwen3_moe(const JsonFields& fields, ModelConfig& m) {
  OnlyValues(fields).one("decoder_sparse_step", "only the first blocks may be dense");
  MoeConfig& moe = m.moe.emplace();
  moe.experts = read_qwen3_experts(fields);
  moe.top_k = fields.count("num_experts_per_tok");
  moe.expert_ffn = fields.count("moe_intermediate_size");
  moe.first_dense_layers = read_dense_blocks(fields, m.layers);
  moe.router.score = RouterScore::kSoftmax;
  moe.router.normalize_gates = read_normalized(fields, false);
  moe.router.bias_rate = 0;  // the class has no selection bias
  m.ffn = fields.count("intermediate_size");
}

void read_glm4_moe(const JsonFields& fields, ModelConfig& m) {
  const OnlyValues only(fields);
  only.one("n_group", "groups of experts are not supported");
  only.one("topk_group", "groups of experts are not supported");
  MoeConfig& moe = m.moe.emplace();
  moe.experts = fields.count("n_routed_experts", 2);
  moe.top_k = fields.count("num_experts_per_tok");
  moe.shared = fields.count("n_shared_experts", 0);
  moe.expert_ffn = fields.count("moe_intermediate_size");
  moe.first_dense_layers = fields.count("first_k_dense_replace", 0);
  moe.router.score = RouterScore::kSigmoid;
  moe.router.normalize_gates = read_normalized(fields, true);
  moe.router.gate_scale = fields.positive("routed_scaling_factor");
  m.ffn = fields.count("intermediate_size");
  if (moe.first_dense_layers > m.layers) {
    throw UserError(fields.about(strprintf("first_k_dense_replace %ld is more than "
                                           "num_hidden_layers %ld",
                                           long(moe.first_dense_layers), long(m.layers))),
                    kConfigJsonHint);
  }
}

}  // namespace

ordered_json model_json(const ModelConfig& m, Family family, const ModelFacts& facts) {
  const FamilyName& name = family_name(family);
  ordered_json j;
  j["architectures"] = {name.architecture};
  j["model_type"] = name.model_type;
  j["vocab_size"] = m.vocab_size;
  j["hidden_size"] = m.hidden;
  j["intermediate_size"] = m.ffn;
  j["num_hidden_layers"] = m.layers;
  j["num_attention_heads"] = m.heads;
  j["num_key_value_heads"] = m.resolved_kv_heads();
  j["head_dim"] = m.resolved_head_dim();
  j["hidden_act"] = "silu";
  j["max_position_embeddings"] = facts.positions;
  j["rms_norm_eps"] = m.norm_eps;
  j["rope_theta"] = m.rope_theta;
  j["rope_scaling"] = nullptr;
  j["attention_bias"] = false;
  j["attention_dropout"] = 0.0;
  if (family == Family::kLlama) j["mlp_bias"] = false;
  if (moe_blocks(m) > 0) add_moe(j, m, family);
  if (facts.window > 0) add_window(j, family, facts);
  j["tie_word_embeddings"] = writes_tied(m);
  j["bos_token_id"] = facts.bos;
  j["eos_token_id"] = facts.eos;
  j["use_cache"] = true;
  j["torch_dtype"] = facts.dtype;
  return j;
}

ImportedModel read_model_json(const std::string& path) {
  const JsonFields fields(path);
  ImportedModel imported;
  imported.family = read_family(fields);
  ModelConfig& m = imported.model;
  read_attention(fields, imported.family, m);
  const OnlyValues only(fields);
  if (const std::string act = fields.text_or("hidden_act", "silu"); act != "silu") {
    only.refuse("hidden_act", "feed-forward layers are SwiGLU, with silu");
  }
  only.off("attention_bias");
  only.off("mlp_bias");
  only.absent("quantization_config", "quantised weights are not supported");
  read_rope(fields, imported.family, m);
  const int64_t window = read_window(fields, imported.family);
  switch (imported.family) {
    case Family::kLlama:
    case Family::kQwen3:
      m.ffn = fields.count("intermediate_size");
      break;
    case Family::kMixtral:
      read_mixtral(fields, m);
      break;
    case Family::kQwen3Moe:
      read_qwen3_moe(fields, m);
      break;
    case Family::kGlm4Moe:
      read_glm4_moe(fields, m);
      break;
  }
  if (m.moe && m.moe->top_k > m.moe->experts) {
    throw UserError(fields.about(strprintf("num_experts_per_tok %ld is more than the %ld experts",
                                           long(m.moe->top_k), long(m.moe->experts))),
                    "a token can choose each expert once");
  }
  imported.further_blocks = fields.optional_count("num_nextn_predict_layers", 0).value_or(0);
  imported.facts = facts_of(fields.all());
  imported.facts.positions = fields.optional_count("max_position_embeddings").value_or(0);
  imported.facts.window = window;
  return imported;
}

}  // namespace assay
