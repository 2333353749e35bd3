// Files that a user writes or downloads: a configuration, a matrix, claims of a map.
#include <filesystem>

#include "base/check.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "lab/map/map_claims.h"
#include "lab/matrix/file.h"
#include "tests/fuzz/targets.h"

namespace assay::fuzz {
namespace {

constexpr const char* kModel =
    "model: {hidden: 64, layers: 2, heads: 2, ffn: 128, vocab_size: 512,\n"
    "  moe: {experts: 4, top_k: 2, shared: 1, expert_ffn: 32,\n"
    "    router: {score: sigmoid, bias_rate: auto, aux: gates, aux_alpha: 0.01}}}\n"
    "optimizer: {lr: 3e-3}\n"
    "schedule: {warmup: 5, warmdown: 10}\n"
    "run: {steps: 60, batch_tokens: 1024, sequence: 64, micro_batch: 8}\n"
    "data: {synth: {train_tokens: 120000, val_tokens: 20000, vocab_size: 512}}\n"
    "telemetry: {window: 8, collapse_stop: {measure: gini, at_least: 0.9, layers: any, for: 10}}\n";

// A configuration that was read is written and read to the same.
void parse_config(std::string_view bytes) {
  const Config config = parse_config_text(std::string(bytes), "fuzz.yaml", scratch());
  const std::string text = to_yaml(config);
  const Config again = parse_config_text(text, "written.yaml", scratch());
  CHECK(to_yaml(again) == text, "a configuration changes when it is written and read:\n%s",
        text.c_str());
}

std::vector<std::string> configs() {
  return {kModel, "include: []\n",
          "model:\n  hidden: 128\n  moe: null\nprecision: {recipe: nvfp4}\n",
          "data:\n  train: [a.bin, 'b c.bin']\n  mixture: [0.5, 0.5]\ncontract: {kind: activeDN, "
          "coefficient: 20}\n"};
}

void parse_matrix(std::string_view bytes) {
  put("dense.yaml", kModel);
  load_matrix_file(put("fuzz-matrix.yaml", bytes));
}

std::vector<std::string> matrices() {
  return {
      "name: m\nmodels: {dense: dense.yaml, moe: {config: dense.yaml, set: {model.moe.experts: "
      "8}}}\n"
      "contracts:\n  - {kind: activeDN, reference: dense, branches: [0.25, 0.5]}\n"
      "seeds: [1, 2]\nset: {run.steps: 40}\njobs: 2\n",
      "name: m\nmodels: {a: dense.yaml, b: dense.yaml}\nprecisions: [bf16, nvfp4]\n"
      "claims:\n  - {measure: val_loss, of: a, below: b, at: 0.5}\n"
      "  - {measure: cv, of: a, near: 0.5, within: 0.1, across: [bf16, nvfp4]}\n"};
}

void parse_map_claims(std::string_view bytes) {
  read_map_claims(put("fuzz-claims.yaml", bytes));
}

std::vector<std::string> map_claims() {
  return {
      "- {name: one, of: a, below: b, along: tokens, at: 1e3}\n"
      "- {of: a, above: b, along: p_total, at: every}\n"
      "- {of: a, overtakes: b, along: flops, from: 1, to: 2e9}\n"};
}

}  // namespace

const Target kConfigTarget = {"config", parse_config, configs};
const Target kMatrixTarget = {"matrix", parse_matrix, matrices};
const Target kMapClaimsTarget = {"map_claims", parse_map_claims, map_claims};

}  // namespace assay::fuzz
