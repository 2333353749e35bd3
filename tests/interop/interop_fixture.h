// Runs imported from models in the Hugging Face format, runs with random weights, and the logits of
// either.
#pragma once

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/random.h"
#include "engine/config/text.h"
#include "engine/run/checkpoint.h"
#include "engine/run/safetensors.h"
#include "interop/export.h"
#include "interop/import.h"
#include "models/decoder/decoder.h"
#include "models/parameters/table.h"
#include "tests/catch.h"
#include "tests/data/temp_folder.h"
#include "tests/tolerance.h"

namespace assay {

inline std::string fixture(const std::string& name) {
  return "tests/interop/fixtures/" + name;
}

inline void in_fp32(Config& config) {
  config.precision.recipe = "fp32";
}

inline Imported imported(const std::string& folder, const std::string& run,
                         std::vector<std::string> sets = {}, const std::string& config = "") {
  RunMeta meta;
  meta.command = {"test"};
  return import_model({.folder = folder, .run = run, .config = config, .sets = std::move(sets)},
                      in_fp32, meta);
}

// The logits after each token, (tokens, V), computed in fp32 from a checkpoint.
inline std::vector<float> logits(const ModelConfig& model_config, const std::string& checkpoint,
                                 const std::vector<int32_t>& tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  const auto model =
      make_decoder(model_config, Recipe::kFp32, {.micro_batch = 1, .sequence = count});
  MemoryPlan plan;
  Exec on;
  on.threads = 2;
  model->plan(plan);
  model->plan_cache(plan, 1);
  plan.add(Section::kScratch, "workspace", on.workspace, {model->workspace_bytes()});
  plan.allocate();
  model->bind(on);
  load_model(checkpoint, model->tensors());
  model->refresh_weights(on);
  const int64_t vocab = model_config.vocab_size;
  std::vector<float> all(static_cast<size_t>(count * vocab));
  for (int64_t i = 0; i < count; ++i) {
    const TextPart part{.text = 0, .position = i, .tokens = 1};
    const View<float, 2> row{all.data() + i * vocab, {1, vocab}};
    model->extend(on, {.token = {tokens.data() + i, {1}}, .part = {&part, {1}}}, row);
  }
  return all;
}

inline double largest(const std::vector<float>& values) {
  double most = 0;
  for (const float v : values) most = std::fmax(most, std::abs(v));
  return most;
}

inline double largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  double most = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double difference = std::abs(double(a[i]) - double(b[i]));
    most = std::isnan(difference) ? INFINITY : std::fmax(most, difference);
  }
  return most;
}

// A dense model: 64 wide, two blocks, fp32.
inline Config small_model() {
  Config c;
  c.model.hidden = 64;
  c.model.layers = 2;
  c.model.heads = 2;
  c.model.kv_heads = 1;
  c.model.ffn = 48;
  c.model.vocab_size = 70;
  c.precision.recipe = "fp32";
  return c;
}

// Writes a checkpoint of random weights in which no tensor has its initial values, and returns its
// folder.
inline std::string random_checkpoint(const Config& config, const std::string& run) {
  std::vector<std::vector<float>> values;
  std::vector<TensorRef> tensors;
  for (const ParameterSpec& spec : parameter_table(config.model)) {
    RandomSequence random({3, stream_id(spec.name), 0});
    values.emplace_back(static_cast<size_t>(spec.size()));
    for (float& v : values.back()) {
      const float uniform = float(random.below(1 << 20)) / float(1 << 19) - 1;
      v = spec.role == Role::kNorm ? 1 + 0.4f * uniform : 0.4f * uniform;
    }
    tensors.push_back({spec.name, DType::kF32, spec.shape, values.back().data()});
  }
  TrainingState state;
  state.config_yaml = to_yaml(config);
  return Checkpoints(run, 1, nullptr).save(state, tensors, {}, Checkpoints::Keep::kMilestone);
}

inline std::vector<int32_t> some_tokens(int64_t vocab) {
  std::vector<int32_t> tokens;
  RandomSequence random({5, stream_id("tokens"), 0});
  for (int i = 0; i < 20; ++i) tokens.push_back(int32_t(random.below(uint32_t(vocab))));
  return tokens;
}

}  // namespace assay
