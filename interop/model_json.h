// config.json of a model, out of our configuration and back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "engine/config/config.h"
#include "interop/hf_architecture.h"

namespace assay {

// What config.json says beside the model's shape.
struct ModelFacts {
  std::string dtype = "bfloat16";
  int64_t positions = 0;  // trained with
  int32_t eot = -1;       // -1 when it is not known
};
nlohmann::ordered_json model_json(const ModelConfig& model, Family family, const ModelFacts& facts);

struct ImportedModel {
  Family family = Family::kLlama;
  ModelConfig model;
  int64_t positions = 0;  // that it is made for; 0 when the file does not say
  int64_t further_blocks =
      0;  // behind the last one, which predict further tokens: not part of the model
};
// UserError when a field is missing, of another type, contradicts another one, or says what we do
// not compute.
ImportedModel read_model_json(const std::string& path);

}  // namespace assay
