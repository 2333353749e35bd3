#include "session/data_evidence.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "base/check.h"
#include "base/math.h"
#include "data/manifest.h"
#include "data/reference_data.h"
#include "data/shard.h"
#include "data/tokenizer_files.h"

namespace assay {

namespace {

// Vocabularies are rounded up to multiples of this for the speed of the head's products.
constexpr int64_t kUsualPadding = 128;

// "data.val: val.bin is also training data (data.train: train.bin): ..."; "" if no file is.
std::string validation_is_training(const RunData& data) {
  int64_t shared = 0;
  std::string first;
  for (const std::string& val : data.val) {
    const HashedFile& of_val = data.hashed.at(val);
    const auto same = std::find_if(data.train.begin(), data.train.end(), [&](const auto& train) {
      const HashedFile& of_train = data.hashed.at(train);
      return of_train.stamp.same_file(of_val.stamp) || of_train.sha256 == of_val.sha256;
    });
    if (same == data.train.end()) continue;
    if (shared++ == 0) first = *same == val ? val : val + " (data.train has it as " + *same + ")";
  }
  if (shared == 0) return "";
  const std::string more =
      shared > 1 ? strprintf(" and %ld more files", static_cast<long>(shared - 1)) : "";
  return "data.val: " + first + more +
         " is also training data: its loss shows what the model remembers, not what it learned";
}

std::string vocabulary_is_larger(const Config& config, const RunData& data) {
  const int64_t rows = config.model.vocab_size, tokens = data.tokenizer_vocab;
  const int64_t padded = ceil_div(tokens, kUsualPadding) * kUsualPadding;
  // In a small corpus a tokenizer finds fewer tokens than it is asked for: a tenth is not worth a
  // warning.
  if (tokens == 0 || rows <= padded || 10 * (rows - tokens) <= rows) return "";
  return strprintf(
      "model.vocab_size is %ld, but the tokenizer has %ld tokens: %ld rows of the embedding can "
      "never occur; --set model.vocab_size=%ld leaves them out",
      static_cast<long>(rows), static_cast<long>(tokens), static_cast<long>(rows - tokens),
      static_cast<long>(tokens));
}

int64_t sequences_of(const std::string& shard, int64_t tokens) {
  return std::max<int64_t>(0, Shard(shard).tokens() - 1) / tokens;
}

// Of a mixture whose first eval.tokens validation tokens have none of a source that has some.
std::string sources_not_validated(const Config& config, const RunData& data) {
  std::set<std::string> read;
  int64_t left = ceil_div(config.eval.tokens, config.run.sequence);
  for (size_t i = 0; i < data.val.size() && left > 0; ++i) {
    const int64_t sequences = sequences_of(data.val[i], config.run.sequence);
    if (sequences > 0) read.insert(data.val[i]);
    left -= sequences;
  }
  std::string missing, own;
  for (const SourceShards& source : data.source_val) {
    const bool is_read = std::any_of(source.files.begin(), source.files.end(),
                                     [&](const std::string& f) { return read.contains(f); });
    if (is_read) continue;
    missing += (missing.empty() ? "" : ", ") + source.name;
    own += (own.empty() ? "val/" : ", val/") + source.name;
  }
  if (missing.empty()) return "";
  return strprintf(
      "data.val: the validation loss is of the first %ld tokens in the order of the files "
      "(eval.tokens), which have none of %s; the loss of its own: %s",
      static_cast<long>(config.eval.tokens), missing.c_str(), own.c_str());
}

// Of shards so short that what is left at their ends is a part of the data.
std::string tails_not_read(const Config& config, const RunData& data) {
  constexpr double kWorthSaying = 0.05;
  const bool by_sequence = config.data.shuffle || config.data.mixture;
  const int64_t block = by_sequence ? config.run.sequence : config.run.batch_tokens;
  int64_t tokens = 0, read = 0;
  for (const std::string& shard : data.train) {
    tokens += Shard(shard).tokens();
    read += sequences_of(shard, block) * block;
  }
  if (static_cast<double>(tokens - read) <= kWorthSaying * static_cast<double>(tokens)) return "";
  return strprintf(
      "data.train: %.0f%% of the tokens are never read: what is left at the end of each of %zu "
      "shards makes no %s of %ld tokens (%s)",
      100 * static_cast<double>(tokens - read) / static_cast<double>(tokens), data.train.size(),
      by_sequence ? "sequence" : "step", static_cast<long>(block),
      by_sequence ? "write larger shards: assay data prepare --shard-tokens N"
                  : "data.shuffle: true reads whole sequences");
}

}  // namespace

void hash_data(const Config& config, RunData& data) {
  std::vector<std::string> paths = data.train;
  paths.insert(paths.end(), data.val.begin(), data.val.end());
  if (!data.tokenizer.empty()) {
    for (const std::string& file : tokenizer_paths(data.tokenizer)) paths.push_back(file);
  }
  const auto start = std::chrono::steady_clock::now();
  data.hashed = hash_files(paths, UseCache::kYes);
  data.hash_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  require_manifest_hashes(data.hashed);
  require_reference(config.data.reference, data.val, data.hashed);
}

std::vector<std::string> data_warnings(const Config& config, const RunData& data) {
  std::vector<std::string> warnings;
  for (std::string line : {validation_is_training(data), vocabulary_is_larger(config, data),
                           sources_not_validated(config, data), tails_not_read(config, data)})
    if (!line.empty()) warnings.push_back(std::move(line));
  return warnings;
}

}  // namespace assay
