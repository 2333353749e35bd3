#include "engine/config_check.h"

#include <glob.h>

#include <algorithm>
#include <filesystem>

#include "base/check.h"

namespace assay {
namespace {

std::string text(int64_t value) {
  return std::to_string(value);
}

// Sizes are at most 10^15 each, so products are formed in 128 bits.
__int128 product(int64_t a, int64_t b) {
  return static_cast<__int128>(a) * b;
}

void validate_attention(const ModelConfig& m) {
  if (m.head_dim == 0 && m.hidden % m.heads != 0) {
    throw UserError(
        "model.heads = " + text(m.heads) + " does not divide model.hidden = " + text(m.hidden),
        "choose a divisor of " + text(m.hidden) + ", or give model.head_dim");
  }
  const int64_t width = m.resolved_head_dim();
  if (width != 32 && width != 64 && width != 128) {
    throw UserError(m.head_dim > 0
                        ? "model.head_dim = " + text(width) + " is not 32, 64 or 128"
                        : "model.hidden / model.heads = " + text(m.hidden) + " / " + text(m.heads) +
                              " = " + text(width) + " is not 32, 64 or 128",
                    "heads are 32, 64 or 128 wide: choose model.heads so, or give model.head_dim");
  }
  if (m.heads % m.resolved_kv_heads() != 0) {
    throw UserError(
        "model.kv_heads = " + text(m.kv_heads) + " does not divide model.heads = " + text(m.heads),
        "every key-value head serves the same number of query heads");
  }
}

void validate_moe(const ModelConfig& m) {
  const MoeConfig& moe = *m.moe;
  if (moe.top_k > moe.experts) {
    throw UserError("model.moe.top_k = " + text(moe.top_k) +
                        " is more than model.moe.experts = " + text(moe.experts),
                    "a token can choose each expert once");
  }
  if (moe.first_dense_layers > m.layers) {
    throw UserError("model.moe.first_dense_layers = " + text(moe.first_dense_layers) +
                        " is more than model.layers = " + text(m.layers),
                    "leave at least one block for the experts, or take model.moe out");
  }
  if (moe.router.aux == "none" && moe.router.aux_alpha > 0) {
    throw UserError("model.moe.router.aux_alpha is set but model.moe.router.aux is none",
                    "choose aux: switch or aux: gates, or aux_alpha: 0");
  }
}

void validate_batch(const Config& c) {
  const RunConfig& r = c.run;
  const __int128 micro = product(r.sequence, r.micro_batch);
  if (micro > r.batch_tokens || r.batch_tokens % static_cast<int64_t>(micro) != 0) {
    throw UserError("run.batch_tokens = " + text(r.batch_tokens) +
                        " is not a multiple of run.sequence * run.micro_batch = " +
                        text(r.sequence) + " * " + text(r.micro_batch),
                    "a step is a whole number of micro-batches: change one of the three");
  }
  if (c.eval.tokens < r.sequence) {
    throw UserError(
        "eval.tokens = " + text(c.eval.tokens) + " is less than run.sequence = " + text(r.sequence),
        "validate at least one sequence");
  }
}

void validate_optimizer(const Config& c) {
  if (c.schedule.decay == "cosine" && c.schedule.floor > c.optimizer.lr) {
    throw UserError(strprintf("schedule.floor = %g is above optimizer.lr = %g", c.schedule.floor,
                              c.optimizer.lr),
                    "the floor is the learning rate that the decay ends at");
  }
  if (c.contract.kind != "steps" && c.contract.coefficient <= 0) {
    throw UserError(
        "contract.kind is " + c.contract.kind + " but contract.coefficient is not given",
        "give the tokens per parameter, e.g. contract: {kind: activeDN, coefficient: 20}");
  }
}

}  // namespace

void validate_schedule(const Config& c) {
  if (product(c.schedule.warmup, 1) + c.schedule.warmdown > c.run.steps) {
    throw UserError("schedule.warmup + schedule.warmdown = " + text(c.schedule.warmup) + " + " +
                        text(c.schedule.warmdown) +
                        " is more than run.steps = " + text(c.run.steps),
                    "shorten them, or train longer");
  }
}

void validate(const Config& config) {
  validate_attention(config.model);
  if (config.model.moe) validate_moe(config.model);
  validate_batch(config);
  validate_optimizer(config);
  if (config.contract.kind == "steps") validate_schedule(config);
  if (config.data.synth && config.data.synth->vocab_size > config.model.vocab_size) {
    throw UserError("data.synth.vocab_size = " + text(config.data.synth->vocab_size) +
                        " is more than model.vocab_size = " + text(config.model.vocab_size),
                    "the model needs a row for every token");
  }
}

void validate_data(const Config& config) {
  const DataConfig& d = config.data;
  if (d.synth && !d.train.empty()) {
    throw UserError("data.train and data.synth are both given", "take one out: `data.synth: null`");
  }
  if (!d.synth && d.train.empty()) {
    throw UserError(
        "data.train is not given",
        "give shards (data: {train: [...], val: [...]}; `assay data prepare` makes them), or "
        "data: {synth: {}}");
  }
  if (!d.synth && d.val.empty()) {
    throw UserError("data.val is not given", "give validation shards, e.g. data: {val: [val.bin]}");
  }
}

std::vector<std::string> expand_files(const std::vector<std::string>& patterns,
                                      const std::string& field) {
  std::vector<std::string> files;
  for (const std::string& pattern : patterns) {
    glob_t found = {};
    const int status = glob(pattern.c_str(), 0, nullptr, &found);
    for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
      const std::string file = found.gl_pathv[i];
      if (std::filesystem::is_directory(file)) {
        globfree(&found);
        throw UserError(field + ": " + file + " is a folder", "name its files: " + file + "/*.bin");
      }
      files.push_back(file);
    }
    globfree(&found);
    if (status == GLOB_NOMATCH) {
      throw UserError(field + ": no file matches " + pattern,
                      "check the path; paths in a configuration are relative to its file");
    }
    if (status != 0)
      throw UserError(field + ": cannot search " + pattern, "check who may read the folder");
  }
  std::sort(files.begin(), files.end());
  files.erase(std::unique(files.begin(), files.end()), files.end());
  return files;
}

}  // namespace assay
