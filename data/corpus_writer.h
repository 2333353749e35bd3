// The shards of one corpus on their way to the disk: NAME_val_000000.bin, NAME_train_000001.bin,
// ..., tokenizer.json, manifest.json. Nothing has its final name before all of it is written; the
// manifest is last.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "data/bpe.h"
#include "data/manifest.h"
#include "data/shard.h"

namespace assay {

enum class Split { kTrain, kVal };
enum class Existing { kRefuse, kReplace };

class CorpusWriter {
 public:
  struct Config {
    std::string folder;
    std::string name = "corpus";
    int64_t shard_tokens = 100'000'000;
    Existing existing = Existing::kRefuse;  // what to do with a corpus that is there
  };
  // `tokenizer` must outlive the writer. UserError when the folder holds a corpus and existing is
  // kRefuse.
  CorpusWriter(const Tokenizer& tokenizer, Config config);

  // EOT and the tokens of a document; a document that does not fit continues in the next shard.
  void add_document(Split split, View<const int32_t, 1> tokens, int64_t text_bytes);
  // More of the document added last, to the same split.
  void continue_document(Split split, View<const int32_t, 1> tokens, int64_t text_bytes);

  // A file that documents came from, for the manifest.
  void add_source(SourceEntry source) { sources_.push_back(std::move(source)); }

  int64_t documents(Split split) const;  // so far

  // Everything gets its final name. `validation` is how documents were held out, for the manifest.
  // UserError when there is no training document.
  Manifest commit(const std::string& validation = "");

 private:
  struct Part {
    std::vector<std::unique_ptr<ShardWriter>> shards;
    std::vector<int64_t> documents;
  };
  void append(Split split, View<const int32_t, 1> tokens);
  ShardWriter& open_shard(Split split);

  const Tokenizer& tokenizer_;
  Config config_;
  Part parts_[2];
  std::vector<SourceEntry> sources_;
  int64_t text_bytes_ = 0;
};

}  // namespace assay
