// Exports a checkpoint as a folder in the format of Hugging Face transformers: safetensors,
// config.json, generation_config.json, and the tokenizer's files if there is a tokenizer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "engine/config/config.h"
#include "engine/tensor_ref.h"
#include "interop/hf_architecture.h"
#include "interop/imported_facts.h"

namespace assay {

struct ExportPlan {
  std::string checkpoint;  // folder
  std::string out;         // folder; made if absent, must be empty
  DType dtype = DType::kBF16;
  int64_t shard_bytes = 0;
  ImportedFacts imported = {};  // of the checkpoint's run
};

struct Exported {
  Family family = Family::kLlama;
  std::vector<std::string> files;  // of weights
  int64_t tensors = 0, bytes = 0;
  std::vector<std::string> folded;  // folded_gains()
  std::string not_opened;           // not_opened_by()
};

// The context is the longer one of the run's sequence and what the model was imported with. The ids
// of begin and end are <|endoftext|>, or without a tokenizer those that it was imported with.
// UserError if no family matches the model exactly, or if `out` holds files. config.json is written
// last.
Exported export_checkpoint(const Config& config, const ExportPlan& plan,
                           const std::optional<Tokenizer>& tokenizer);

}  // namespace assay
