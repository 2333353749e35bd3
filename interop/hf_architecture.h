// Model families that other programs know by name, and the choice of the one that a model of ours
// matches exactly.
//
//   LlamaForCausalLM    dense
//   Qwen3ForCausalLM    dense with qk_norm
//   MixtralForCausalLM  softmax router with normalised gates in every block
//   Qwen3MoeForCausalLM softmax router with qk_norm, normalised gates or not, dense blocks first
//   Glm4MoeForCausalLM  sigmoid router, selection bias, shared experts, dense blocks first, with or
//                       without qk_norm
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

enum class Family { kLlama, kQwen3, kMixtral, kQwen3Moe, kGlm4Moe };

struct FamilyName {
  Family family;
  const char* architecture;  // class of the model, in config.json
  const char* model_type;
};
const std::vector<FamilyName>& families();
const FamilyName& family_name(Family family);

// UserError naming every part of the model that no family has.
Family choose_family(const ModelConfig& model);

// True if the exported head is the exported embedding. If embed_gain and logit_gain differ, so do
// the folded matrices, and both are written.
bool writes_tied(const ModelConfig& model);

// Gains multiplied into weights because the family has no field for them: "model.logit_gain = 0.5
// into lm_head".
std::vector<std::string> folded_gains(const ModelConfig& model);

// Why not every version of transformers opens the exported model; "" if all do.
std::string not_opened_by(const ModelConfig& model, Family family);

}  // namespace assay
