#include "tools/run_data.h"

#include "base/check.h"
#include "data/manifest.h"
#include "data/sha256.h"
#include "data/synth_shards.h"
#include "data/tokenizer_files.h"
#include "engine/config_check.h"

namespace assay {

RunData resolve_data(const Config& config) {
  validate_data(config);
  RunData data;
  if (config.data.synth) {
    const SynthConfig& s = *config.data.synth;
    const SynthCorpus corpus = cached_synth_corpus({.train_tokens = s.train_tokens,
                                                    .val_tokens = s.val_tokens,
                                                    .vocab_size = s.vocab_size,
                                                    .seed = static_cast<uint64_t>(s.seed)},
                                                   config.data.cache);
    data.train = corpus.train;
    data.val = corpus.val;
    data.tokenizer = corpus.tokenizer;
  } else {
    data.train = expand_files(config.data.train, "data.train");
    data.val = expand_files(config.data.val, "data.val");
    data.tokenizer = config.data.tokenizer;
  }
  if (!data.tokenizer.empty()) {
    const Tokenizer tokenizer = read_tokenizer(data.tokenizer);
    if (tokenizer.vocab_size() > config.model.vocab_size) {
      throw UserError(
          strprintf("%s has %ld tokens, model.vocab_size is %ld", data.tokenizer.c_str(),
                    long(tokenizer.vocab_size()), long(config.model.vocab_size)),
          strprintf("--set model.vocab_size=%ld", long(tokenizer.vocab_size())));
    }
    data.token_bytes = tokenizer.token_lengths(config.model.vocab_size);
    data.eot = tokenizer.eot();
  }
  if (config.data.mask_eos && data.eot < 0) {
    throw UserError("data.mask_eos is on, but there is no tokenizer to say which id ends a text",
                    "give data.tokenizer, or --set data.mask_eos=false");
  }
  return data;
}

std::map<std::string, std::string> data_hashes(const RunData& data) {
  std::map<std::string, std::string> hashes;
  const auto add = [&](const std::string& path) {
    // The manifest has the hash of a shard whose size it knows; verifying it is `assay data verify`.
    const auto entry = find_entry(path);
    hashes[path] = entry ? entry->sha256 : sha256_file(path);
  };
  for (const std::string& path : data.train) add(path);
  for (const std::string& path : data.val) add(path);
  if (!data.tokenizer.empty()) hashes[data.tokenizer] = sha256_file(data.tokenizer);
  return hashes;
}

}  // namespace assay
