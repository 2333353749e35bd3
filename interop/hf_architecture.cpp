#include "interop/hf_architecture.h"

#include "base/check.h"
#include "base/joined.h"
#include "engine/config/fields.h"

namespace assay {
namespace {

// Parts of the model that no class with a softmax router has a field for.
std::vector<std::string> beyond_softmax(const MoeConfig& moe) {
  std::vector<std::string> parts;
  if (moe.shared > 0) parts.push_back(strprintf("model.moe.shared = %ld", long(moe.shared)));
  if (moe.router.bias_rate.on()) {
    parts.push_back("model.moe.router.bias_rate = " + yaml_scalar(moe.router.bias_rate));
  }
  return parts;
}

// Parts of the model that only a class with norms of queries and keys has a field for.
std::vector<std::string> beyond_mixtral(const MoeConfig& moe) {
  std::vector<std::string> parts;
  if (moe.first_dense_layers > 0) {
    parts.push_back(strprintf("model.moe.first_dense_layers = %ld", long(moe.first_dense_layers)));
  }
  if (!moe.router.normalize_gates) parts.push_back("model.moe.router.normalize_gates = false");
  return parts;
}

Family softmax_family(const ModelConfig& m) {
  const std::vector<std::string> beyond = beyond_softmax(*m.moe);
  const std::vector<std::string> needs_norms =
      m.qk_norm ? std::vector<std::string>() : beyond_mixtral(*m.moe);
  if (!beyond.empty()) {
    const std::string also =
        needs_norms.empty() ? "" : "; nor, without model.qk_norm, for " + joined(needs_norms, ", ");
    throw UserError(
        "a softmax router is exported as MixtralForCausalLM or Qwen3MoeForCausalLM, "
        "which have no field for " +
            joined(beyond, ", ") + also,
        "train without it, or with model.moe.router.score: sigmoid, which is exported "
        "as Glm4MoeForCausalLM");
  }
  if (m.qk_norm) return Family::kQwen3Moe;
  if (needs_norms.empty()) return Family::kMixtral;
  throw UserError(
      "a softmax router without model.qk_norm is exported as MixtralForCausalLM, which "
      "has no field for " +
          joined(needs_norms, ", "),
      "train without it, or with model.qk_norm: true, which is exported as "
      "Qwen3MoeForCausalLM, or with model.moe.router.score: sigmoid "
      "(Glm4MoeForCausalLM)");
}

}  // namespace

const std::vector<FamilyName>& families() {
  static const std::vector<FamilyName> all = {
      {Family::kLlama, "LlamaForCausalLM", "llama"},
      {Family::kQwen3, "Qwen3ForCausalLM", "qwen3"},
      {Family::kMixtral, "MixtralForCausalLM", "mixtral"},
      {Family::kQwen3Moe, "Qwen3MoeForCausalLM", "qwen3_moe"},
      {Family::kGlm4Moe, "Glm4MoeForCausalLM", "glm4_moe"},
  };
  return all;
}

const FamilyName& family_name(Family family) {
  for (const FamilyName& name : families()) {
    if (name.family == family) return name;
  }
  CHECK(false, "family %d", int(family));
  return families().front();
}

Family choose_family(const ModelConfig& m) {
  if (moe_blocks(m) == 0) return m.qk_norm ? Family::kQwen3 : Family::kLlama;
  if (m.moe->router.score == RouterScore::kSigmoid) {
    if (m.moe->experts > 1) return Family::kGlm4Moe;
    throw UserError("a sigmoid router with model.moe.experts = 1 is not a Glm4MoeForCausalLM",
                    "its router needs the two best experts: train at least 2");
  }
  return softmax_family(m);
}

bool writes_tied(const ModelConfig& m) {
  return m.tie_embeddings && m.embed_gain == m.logit_gain;
}

std::vector<std::string> folded_gains(const ModelConfig& m) {
  std::vector<std::string> folded;
  const auto add = [&](const char* field, double gain, const char* where) {
    if (gain != 1) folded.push_back(strprintf("model.%s = %g into %s", field, gain, where));
  };
  if (m.attention_gain != AttentionGain::kOne) {
    folded.push_back(std::string("model.attention_gain = ") + name_of(m.attention_gain) +
                     " into o_proj");
  }
  add("embed_gain", m.embed_gain, "embed_tokens");
  add("logit_gain", m.logit_gain, writes_tied(m) ? "embed_tokens" : "lm_head");
  if (moe_blocks(m) == 0) return folded;
  const RouterConfig& router = m.moe->router;
  if (router.score == RouterScore::kSigmoid)
    add("moe.router.route_scale", router.route_scale, "mlp.gate");
  if (router.score == RouterScore::kSoftmax)
    add("moe.router.gate_scale", router.gate_scale,
        m.qk_norm ? "experts' down_proj" : "experts' w2");
  return folded;
}

std::string not_opened_by(const ModelConfig& m, Family family) {
  if (family != Family::kLlama || m.hidden % m.heads == 0) return "";
  return strprintf(
      "transformers 4.57 opens it, transformers 5 does not: its LlamaForCausalLM requires that "
      "model.heads = %ld divides model.hidden = %ld; with model.qk_norm (Qwen3ForCausalLM) both do",
      long(m.heads), long(m.hidden));
}

}  // namespace assay
