#include "session/data_evidence.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/check.h"
#include "base/math.h"
#include "base/seconds_since.h"
#include "base/some_names.h"
#include "data/manifest.h"
#include "data/reference_data.h"
#include "data/shard.h"
#include "data/tokenizer_files.h"
#include "models/audit/model_table.h"
#include "session/unread_sources.h"

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

// "data.train: b.bin has the bytes of a.bin: ..."; "" if no shard has those of another. Copies of
// all sources of a mixture.
std::string trained_twice(const RunData& data) {
  std::map<std::string, std::string> by_hash;
  int64_t copies = 0;
  std::string first;
  for (const std::string& file : data.train) {
    const auto [other, is_new] = by_hash.try_emplace(data.hashed.at(file).sha256, file);
    if (is_new) continue;
    if (copies++ == 0) first = file + " has the bytes of " + other->second;
  }
  if (copies == 0) return "";
  const std::string more = copies > 1
                               ? strprintf(" (and %ld more such %s)", static_cast<long>(copies - 1),
                                           copies == 2 ? "file" : "files")
                               : "";
  return "data.train: " + first + more +
         ": a pass reads the same text again, and passes, data.max_epochs and the shares of a "
         "mixture count it as new";
}

std::string vocabulary_is_larger(const Config& config, const RunData& data) {
  const int64_t rows = config.model.vocab_size, tokens = data.tokenizer_vocab;
  const int64_t padded = ceil_div(tokens, kUsualPadding) * kUsualPadding;
  // Without the check the shards may have ids that the tokenizer has not.
  if (!config.data.check_tokenizer) return "";
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

// Names sources of a mixture, and other folders of validation data, of which the first eval.tokens
// validation tokens have none.
std::string not_validated(const Config& config, const RunData& data) {
  const UnreadSources unread = unread_sources(data, config.eval.tokens, config.run.sequence);
  if (unread.none()) return "";
  std::string text = strprintf(
      "data.val: the validation loss is of the first %ld tokens in the order of the files "
      "(eval.tokens), which have none of %s",
      long(ceil_div(config.eval.tokens, config.run.sequence) * config.run.sequence),
      joined_names(unread).c_str());
  if (!unread.sources.empty()) {
    std::vector<std::string> own;
    for (const std::string& source : unread.sources) own.push_back("val/" + source);
    text += "; the loss of its own: " + some_names(own);
  }
  if (!unread.folders.empty()) {
    text += strprintf("; eval.tokens=%ld reads some of each", long(unread.tokens_of_all));
  }
  return text;
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
  data.hash_seconds = seconds_since(start);
  require_manifest_hashes(data.hashed);
  require_reference(config.data.reference, data.val, data.hashed);
}

std::vector<std::string> data_warnings(const Config& config, const RunData& data) {
  std::vector<std::string> warnings;
  for (std::string line :
       {validation_is_training(data), trained_twice(data), vocabulary_is_larger(config, data),
        not_validated(config, data), tails_not_read(config, data)})
    if (!line.empty()) warnings.push_back(std::move(line));
  return warnings;
}

std::string validation_text(const Config& config, const RunData& data) {
  const int64_t sequence = config.run.sequence, read = ceil_div(config.eval.tokens, sequence);
  int64_t all = 0;
  for (const std::string& shard : data.val) all += sequences_of(shard, sequence);
  if (all <= read) return "";
  return strprintf("validation: the first %s of %s tokens, in the order of the files (eval.tokens)",
                   grouped(read * sequence).c_str(), grouped(all * sequence).c_str());
}

}  // namespace assay
