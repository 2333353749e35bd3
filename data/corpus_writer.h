// Writes the files of one corpus: NAME_val_000000.bin, NAME_train_000001.bin, ..., tokenizer.json,
// manifest.json. They get their final names only when all of them are written, the manifest last. A
// full shard is closed: a corpus may have more than a process may have open files.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
    Existing existing = Existing::kRefuse;  // what to do with an existing corpus
  };
  // `tokenizer` must outlive the writer. UserError: the folder holds a corpus, shards of this name
  // or another tokenizer, and existing is kRefuse; another program's manifest.json is there; a name
  // or a number of tokens that is not possible; a tokenizer without <|endoftext|>.
  CorpusWriter(const Tokenizer& tokenizer, Config config);

  // Writes EOT and the tokens of a document; one that does not fit continues in the next shard.
  void add_document(Split split, View<const int32_t, 1> tokens, int64_t text_bytes);
  // Adds tokens to the document added last, in the same split.
  void continue_document(Split split, View<const int32_t, 1> tokens, int64_t text_bytes);

  // Adds a file that documents came from, for the manifest.
  void add_source(SourceEntry source) { sources_.push_back(std::move(source)); }

  // From which the order of the documents was drawn, for the manifest.
  void set_shuffle_seed(std::optional<uint64_t> seed) { shuffle_seed_ = seed; }

  int64_t documents(Split split) const;  // so far

  // Gives all files their final names. `validation` says how documents were held out, for the
  // manifest. UserError when there is no training document.
  Manifest commit(const std::string& validation = "");

 private:
  struct Part {
    std::vector<std::unique_ptr<ShardWriter>> shards;
    std::vector<int64_t> documents;
  };
  // Folders that were not there. Those that are empty at the end are removed: of a corpus that was
  // not written.
  class MadeFolders {
   public:
    MadeFolders() = default;
    MadeFolders(const MadeFolders&) = delete;
    MadeFolders& operator=(const MadeFolders&) = delete;
    ~MadeFolders();
    void make(const std::string& folder);

   private:
    std::vector<std::string> paths_;  // the innermost first
  };
  bool refuse_existing() const;
  void append(Split split, View<const int32_t, 1> tokens);
  ShardWriter& open_shard(Split split);

  const Tokenizer& tokenizer_;
  Config config_;
  MadeFolders made_;  // before the parts, whose files are removed first
  Part parts_[2];
  std::vector<SourceEntry> sources_;
  std::optional<uint64_t> shuffle_seed_;
  int64_t text_bytes_ = 0;
  bool interrupted_ = false;  // the folder has shards of a commit that was killed
};

}  // namespace assay
