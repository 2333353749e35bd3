// Writes and reads config.json of a model.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/config/config.h"
#include "interop/hf_architecture.h"
#include "interop/imported_facts.h"

namespace assay {

// Fields of config.json besides the model's shape. The context is known.
struct ModelFacts : ImportedFacts {
  std::string dtype = "bfloat16";
};
nlohmann::ordered_json model_json(const ModelConfig& model, Family family, const ModelFacts& facts);

struct ImportedModel {
  Family family = Family::kLlama;
  ModelConfig model;  // router.bias_rate is 0 if the class has no selection bias
  ImportedFacts facts;
  // Blocks after the last one that predict further tokens; they are not part of the model.
  int64_t further_blocks = 0;
};
// UserError if a field is missing, of another type, contradicts another one, or has an unsupported
// value.
ImportedModel read_model_json(const std::string& path);

}  // namespace assay
