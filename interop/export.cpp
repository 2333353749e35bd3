#include "interop/export.h"

#include <algorithm>

#include "base/check.h"
#include "base/file.h"
#include "base/new_folder.h"
#include "data/tokenizer_files.h"
#include "engine/run/checkpoint_slices.h"
#include "interop/model_json.h"
#include "interop/shard_writer.h"
#include "interop/tensor_map.h"
#include "models/parameters/in_checkpoint.h"

namespace assay {
namespace {

using nlohmann::ordered_json;

// UserError unless the map has every parameter of the model.
void require_whole(const ModelConfig& model, Family family, const std::vector<MappedTensor>& map) {
  const std::string missing = uncovered_parameter(model, map);
  if (missing.empty()) return;
  throw UserError(strprintf("%s would be missing from the exported model: no tensor of %s has it",
                            missing.c_str(), family_name(family).architecture),
                  "add it to interop/tensor_map.cpp, or to what choose_family() refuses");
}

// Reads the mapped part of our tensor, times the gain.
void read_part(const CheckpointSlices& checkpoint, const MappedTensor& t, float* out) {
  const int64_t count = t.size();
  if (count == 0 || t.gain == 0) {
    std::fill_n(out, count, 0.0f);
    return;
  }
  if (checkpoint.find(t.ours)->dtype == DType::kBF16) {
    std::vector<bf16> rounded(static_cast<size_t>(count));
    checkpoint.read(t.ours, t.begin, count, rounded.data());
    std::copy(rounded.begin(), rounded.end(), out);
  } else {
    checkpoint.read(t.ours, t.begin, count, out);
  }
  if (t.gain == 1) return;
  for (int64_t i = 0; i < count; ++i) out[i] = static_cast<float>(double(out[i]) * t.gain);
}

void write_json(const std::string& path, const ordered_json& json) {
  write_file_atomic(path, json.dump(2) + "\n");
}

void write_tokenizer(const std::string& folder, const Tokenizer& tokenizer, int64_t positions) {
  write_file_atomic(folder + "/tokenizer.json", tokenizer_json_with_begin(tokenizer));
  ordered_json j;
  j["tokenizer_class"] = "PreTrainedTokenizerFast";
  j["bos_token"] = kEndOfText;
  j["eos_token"] = kEndOfText;
  j["unk_token"] = nullptr;
  j["add_bos_token"] = true;
  j["clean_up_tokenization_spaces"] = false;
  j["model_input_names"] = {"input_ids", "attention_mask"};
  j["model_max_length"] = positions;
  write_json(folder + "/tokenizer_config.json", j);
}

void write_generation(const std::string& folder, const ModelFacts& facts) {
  ordered_json j;
  j["_from_model_config"] = true;
  if (!facts.bos.is_null()) j["bos_token_id"] = facts.bos;
  if (!facts.eos.is_null()) j["eos_token_id"] = facts.eos;
  j["do_sample"] = true;
  write_json(folder + "/generation_config.json", j);
}

}  // namespace

Exported export_checkpoint(const Config& config, const ExportPlan& plan,
                           const std::optional<Tokenizer>& tokenizer) {
  const ModelConfig& model = config.model;
  Exported exported;
  exported.family = choose_family(model);
  exported.folded = folded_gains(model);
  exported.not_opened = not_opened_by(model, exported.family);
  require_new_folder(plan.out, "choose another --out, or remove it");
  const CheckpointSlices checkpoint(plan.checkpoint, TensorKind::kModel);
  require_model(checkpoint, model);

  const std::vector<MappedTensor> map = tensor_map(model, exported.family);
  require_whole(model, exported.family, map);
  std::vector<PlannedTensor> planned;
  for (const MappedTensor& t : map) {
    const bool kept = t.type == MappedTensor::Type::kF32;
    planned.push_back({.name = t.name, .dtype = kept ? DType::kF32 : plan.dtype, .shape = t.shape});
  }
  NewFolder folder(plan.out);
  const std::string& out = folder.part();
  const WrittenShards written =
      write_shards(out, planned, plan.shard_bytes,
                   [&](size_t i, float* out) { read_part(checkpoint, map[i], out); });
  exported.files = written.files;
  exported.tensors = static_cast<int64_t>(map.size());
  exported.bytes = written.bytes;

  ModelFacts facts{plan.imported, plan.dtype == DType::kF32 ? "float32" : "bfloat16"};
  facts.positions = std::max(config.run.sequence, plan.imported.positions);
  if (tokenizer) {
    facts.bos = facts.eos = tokenizer->eot();
    write_tokenizer(out, *tokenizer, facts.positions);
  }
  write_generation(out, facts);
  write_json(out + "/config.json", model_json(model, exported.family, facts));
  folder.commit();
  return exported;
}

}  // namespace assay
