#include "data/synth_shards.h"

#include <algorithm>
#include <filesystem>

#include "base/check.h"
#include "base/new_folder.h"
#include "base/read_failed.h"
#include "data/bpe_train.h"
#include "data/progress.h"
#include "data/sha256.h"
#include "data/synth.h"
#include "data/synth_grammar.h"
#include "data/tokenizer_files.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

// Text that the tokenizer is trained on: enough for stable merges.
constexpr int64_t kTokenizerBytes = 10'000'000;
constexpr double kBytesPerToken = 4.6;  // of this text, approximately

// Name of the folder in the cache: a hash of everything that the shards depend on.
std::string cache_name(const SynthShards& what) {
  std::string key =
      strprintf("layout 1, train %ld, val %ld, vocabulary %ld, seed %lu\n",
                static_cast<long>(what.train_tokens), static_cast<long>(what.val_tokens),
                static_cast<long>(what.vocab_size), static_cast<unsigned long>(what.seed));
  for (const std::string_view part : {kSynthLexicon, kSynthStories, kSynthPlots}) key += part;
  // Some stories too, which depend on the code that expands the grammar.
  StoryGenerator stories(what.seed);
  for (int i = 0; i < 20; ++i) key += stories.next();
  return "synth-" + sha256_hex(key).substr(0, 16);
}

SynthCorpus corpus_of(const std::string& folder, const Manifest& manifest) {
  SynthCorpus corpus{.folder = folder,
                     .tokenizer = folder + "/" + manifest.tokenizer_file,
                     .train = {},
                     .val = {}};
  for (const ShardEntry& shard : manifest.shards) {
    (shard.split == "train" ? corpus.train : corpus.val).push_back(folder + "/" + shard.file);
  }
  return corpus;
}

bool complete(const std::string& folder) {
  std::error_code ignored;
  if (!fs::exists(fs::path(folder) / kManifestName, ignored)) return false;
  bool whole = false;  // and stays so if the manifest is damaged
  problem_of([&] { whole = verify_corpus(read_manifest(folder), folder).empty(); });
  return whole;
}

}  // namespace

Tokenizer synth_tokenizer(const SynthShards& what) {
  PieceCounter pieces;
  StoryGenerator stories(what.seed);
  const auto bytes =
      std::min(kTokenizerBytes,
               static_cast<int64_t>(kBytesPerToken * static_cast<double>(what.train_tokens)));
  while (pieces.bytes() < bytes) pieces.add(stories.next());
  return train_bpe(pieces, what.vocab_size);
}

SynthCorpus write_synth_corpus(const SynthShards& what, const std::string& folder,
                               Existing existing) {
  const Tokenizer tokenizer = synth_tokenizer(what);
  CorpusWriter writer(tokenizer, {.folder = folder, .name = "synth", .existing = existing});
  Encoder encoder(tokenizer);
  Progress progress("stories",
                    static_cast<int64_t>(kBytesPerToken *
                                         static_cast<double>(what.train_tokens + what.val_tokens)));
  std::vector<int32_t> tokens;
  int64_t bytes = 0;
  const auto fill = [&](Split split, uint64_t first_story, int64_t wanted) {
    StoryGenerator stories(what.seed, first_story);
    for (int64_t written = 0; written < wanted;) {
      const std::string story = stories.next();
      tokens.clear();
      encoder.encode(story, tokens);
      const auto story_bytes = static_cast<int64_t>(story.size());
      writer.add_document(split, {tokens.data(), {static_cast<int64_t>(tokens.size())}},
                          story_bytes);
      written += static_cast<int64_t>(tokens.size()) + 1;
      progress.update(bytes += story_bytes);
    }
  };
  fill(Split::kVal, StoryGenerator::kFirstValidation, what.val_tokens);
  fill(Split::kTrain, 0, what.train_tokens);
  return corpus_of(folder, writer.commit());
}

SynthCorpus cached_synth_corpus(const SynthShards& what, const std::string& cache) {
  const std::string folder = cache + "/" + cache_name(what);
  if (!complete(folder)) {
    // Another process may build it: then this one waits for it.
    NewFolder building(folder, NewFolder::WhenHeld::kWait);
    if (!complete(folder)) {
      write_synth_corpus(what, building.part(), Existing::kReplace);
      std::error_code failed;
      fs::remove_all(folder, failed);  // a damaged one
      building.commit();
    }
  }
  remove_left_lock(folder);
  return corpus_of(folder, read_manifest(folder));
}

std::optional<SynthCorpus> synth_corpus_there(const SynthShards& what, const std::string& cache) {
  const std::string folder = cache + "/" + cache_name(what);
  if (!complete(folder)) return std::nullopt;
  return corpus_of(folder, read_manifest(folder));
}

}  // namespace assay
