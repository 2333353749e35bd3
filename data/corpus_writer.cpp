#include "data/corpus_writer.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "data/pre_split.h"
#include "data/tokenizer_files.h"

namespace assay {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSplitName[] = {"train", "val"};
constexpr const char* kTokenizerName = "tokenizer.json";

// Patterns that name the shards, NAME_train_*.bin, must mean these characters themselves.
void require_corpus_name(const std::string& name) {
  constexpr const char* kFits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
  if (!name.empty() && name.find_first_not_of(kFits) == std::string::npos) return;
  throw UserError("a corpus cannot be named \"" + name + "\"", "use letters, digits, -, _ and .");
}

bool exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// Names of files of the corpus `name`: NAME_train_000001.bin, NAME_val_000000.bin.
std::vector<std::string> shards_in(const std::string& folder, const std::string& name) {
  std::vector<std::string> found;
  for (const std::string& file : names_in(folder)) {
    for (const char* split : kSplitName) {
      const std::string begin = name + "_" + split + "_", end = ".bin";
      if (!file.starts_with(begin) || !file.ends_with(end)) continue;
      const std::string number = file.substr(begin.size(), file.size() - begin.size() - end.size());
      const bool digits = number.find_first_not_of("0123456789") == std::string::npos;
      if (digits && number.size() >= 6) found.push_back(file);
    }
  }
  return found;
}

// The shards of an old corpus: of its manifest, and those of this name whose manifest was lost. All
// before the first new one has its name, so that a kill leaves no mixture.
void remove_shards(const Manifest& old, const std::string& folder, const std::string& name) {
  std::vector<std::string> stale = shards_in(folder, name);
  for (const ShardEntry& shard : old.shards)
    stale.push_back(fs::path(shard.file).filename().string());
  std::error_code ignored;
  for (const std::string& file : stale) fs::remove(folder + "/" + file, ignored);
}

// Empty if there is no manifest or if it is damaged: its shards are then unknown.
Manifest existing_manifest(const std::string& folder) {
  try {
    if (exists(folder + "/" + kManifestName)) return read_manifest(folder);
  } catch (const UserError&) {
  }
  return {};
}

// The manifest.json of another program is never replaced: it may describe the texts in the folder.
void refuse_foreign_manifest(const std::string& folder) {
  const std::string path = folder + "/" + kManifestName;
  if (exists(path) && !has_manifest(folder))
    throw UserError(path + " is of another program, and a corpus has its own file of that name",
                    "choose another folder, or move that file away");
}

// Whether a commit of a corpus with this tokenizer was killed between its renames, and these are
// its shards: its manifest lists them, and has not its name yet.
bool is_interrupted_commit(const std::string& folder, const std::vector<std::string>& shards,
                           const Tokenizer& tokenizer) {
  const std::string part = folder + "/" + kManifestName + ".part";
  if (!exists(part)) return false;
  try {
    const Manifest manifest = read_manifest_file(part);
    std::set<std::string> listed;
    for (const ShardEntry& shard : manifest.shards) listed.insert(shard.file);
    return manifest.tokenizer_sha256 == tokenizer_hash(tokenizer) &&
           std::all_of(shards.begin(), shards.end(),
                       [&](const std::string& file) { return listed.contains(file); });
  } catch (const UserError&) {
    return false;
  }
}

// False also for a file that is no tokenizer.
bool is_same(const std::string& file, const Tokenizer& tokenizer) {
  try {
    return tokenizer_hash(read_tokenizer(file)) == tokenizer_hash(tokenizer);
  } catch (const UserError&) {
    return false;
  }
}

void write_and_sync(AtomicFile& file, const std::string& text) {
  file.write(text.data(), text.size());
  file.sync();
}

}  // namespace

void CorpusWriter::MadeFolders::make(const std::string& folder) {
  for (fs::path path = fs::path(folder).lexically_normal(); !path.empty() && !exists(path.string());
       path = path.parent_path()) {
    paths_.push_back(path.string());
  }
  make_folders(folder);
}

CorpusWriter::MadeFolders::~MadeFolders() {
  for (const std::string& path : paths_) {
    std::error_code not_empty;
    if (!fs::remove(path, not_empty) && not_empty) return;
  }
}

CorpusWriter::CorpusWriter(const Tokenizer& tokenizer, Config config)
    : tokenizer_(tokenizer), config_(std::move(config)) {
  if (config_.shard_tokens < 1024 || config_.shard_tokens > INT32_MAX)
    throw UserError(
        strprintf("shards of %ld tokens are not possible", static_cast<long>(config_.shard_tokens)),
        "choose 1024 to 2147483647 tokens per shard");
  require_corpus_name(config_.name);
  refuse_foreign_manifest(config_.folder);
  if (config_.existing == Existing::kRefuse) interrupted_ = refuse_existing();
  tokenizer_.eot();
  made_.make(config_.folder);
}

// The given tokenizer may be there already: `assay tokenizer train` put it there. True if there are
// shards of a commit that was killed.
bool CorpusWriter::refuse_existing() const {
  const std::string replace = "choose another folder, or replace it with --overwrite";
  if (exists(config_.folder + "/" + kManifestName))
    throw UserError(config_.folder + " already holds a corpus", replace);
  const std::vector<std::string> shards = shards_in(config_.folder, config_.name);
  if (!shards.empty() && !is_interrupted_commit(config_.folder, shards, tokenizer_))
    throw UserError(config_.folder + " already holds shards, " + shards.front(),
                    replace + ", or give another --name");
  const std::string tokenizer = config_.folder + "/" + kTokenizerName;
  if (exists(tokenizer) && !is_same(tokenizer, tokenizer_))
    throw UserError(config_.folder + " already holds another tokenizer.json", replace);
  return !shards.empty();
}

ShardWriter& CorpusWriter::open_shard(Split split) {
  Part& part = parts_[static_cast<int>(split)];
  if (part.shards.empty() || part.shards.back()->tokens() == config_.shard_tokens) {
    // The first one stays open: its lock keeps other processes from this name.
    if (part.shards.size() > 1) part.shards.back()->close_part();
    const size_t number = part.shards.size() + (split == Split::kTrain ? 1 : 0);
    part.shards.push_back(std::make_unique<ShardWriter>(
        strprintf("%s/%s_%s_%06zu.bin", config_.folder.c_str(), config_.name.c_str(),
                  kSplitName[static_cast<int>(split)], number),
        tokenizer_.vocab_size()));
    part.documents.push_back(0);
  }
  return *part.shards.back();
}

void CorpusWriter::append(Split split, View<const int32_t, 1> tokens) {
  for (int64_t at = 0; at < tokens.size();) {
    ShardWriter& shard = open_shard(split);
    const int64_t count = std::min(tokens.size() - at, config_.shard_tokens - shard.tokens());
    shard.append(tokens.rows(at, count));
    at += count;
  }
}

void CorpusWriter::add_document(Split split, View<const int32_t, 1> tokens, int64_t text_bytes) {
  const int32_t eot = tokenizer_.eot();
  append(split, {&eot, {1}});
  ++parts_[static_cast<int>(split)].documents.back();
  continue_document(split, tokens, text_bytes);
}

void CorpusWriter::continue_document(Split split, View<const int32_t, 1> tokens,
                                     int64_t text_bytes) {
  append(split, tokens);
  text_bytes_ += text_bytes;
}

int64_t CorpusWriter::documents(Split split) const {
  const std::vector<int64_t>& counts = parts_[static_cast<int>(split)].documents;
  return std::accumulate(counts.begin(), counts.end(), int64_t{0});
}

Manifest CorpusWriter::commit(const std::string& validation) {
  if (parts_[static_cast<int>(Split::kTrain)].shards.empty())
    throw UserError(
        strprintf("no document is left to train on, %ld went to validation",
                  static_cast<long>(documents(Split::kVal))),
        "give more documents, another --separator (paragraphs: '\\n\\n', or '\\r\\n\\r\\n' where "
        "lines end in CR LF), or validation text of its own: --val FILE");
  Manifest manifest{.tokenizer_file = kTokenizerName,
                    .tokenizer_sha256 = tokenizer_hash(tokenizer_),
                    .pre_split = pre_split_tables(),
                    .vocab_size = tokenizer_.vocab_size(),
                    .eot_id = tokenizer_.eot(),
                    .text_bytes = text_bytes_,
                    .validation = validation,
                    .shuffle_seed = shuffle_seed_,
                    .sources = sources_,
                    .shards = {}};
  for (const Split split : {Split::kVal, Split::kTrain}) {
    Part& part = parts_[static_cast<int>(split)];
    for (size_t i = 0; i < part.shards.size(); ++i) {
      ShardWriter& shard = *part.shards[i];
      manifest.shards.push_back({.file = fs::path(shard.path()).filename().string(),
                                 .split = kSplitName[static_cast<int>(split)],
                                 .tokens = shard.tokens(),
                                 .documents = part.documents[i],
                                 .sha256 = shard.seal()});
    }
  }
  const std::string tokenizer = config_.folder + "/" + kTokenizerName;
  std::optional<AtomicFile> tokenizer_file;  // the same one of another program keeps its bytes
  if (!exists(tokenizer) || !is_same(tokenizer, tokenizer_)) tokenizer_file.emplace(tokenizer);
  if (config_.existing == Existing::kRefuse && exists(config_.folder + "/" + kManifestName)) {
    throw UserError(config_.folder + " holds a corpus that another process has just written",
                    "choose another folder, or replace it with --overwrite");
  }
  // While the manifest that lists them is there: a kill may follow its truncation.
  if (interrupted_) remove_shards({}, config_.folder, config_.name);
  AtomicFile manifest_file(config_.folder + "/" + kManifestName);
  if (tokenizer_file) write_and_sync(*tokenizer_file, tokenizer_json(tokenizer_));
  write_and_sync(manifest_file, manifest_text(manifest));

  // All content is on the disk; from here on files are only renamed and removed.
  const Manifest old = existing_manifest(config_.folder);
  std::error_code ignored;
  fs::remove(manifest_file.path(), ignored);
  remove_shards(old, config_.folder, config_.name);
  try {
    for (const Part& part : parts_)
      for (const auto& shard : part.shards) shard->commit();
    if (tokenizer_file) tokenizer_file->commit();
    manifest_file.commit();
  } catch (...) {  // shards without a manifest would be in the way of the same command
    for (const Part& part : parts_)
      for (const auto& shard : part.shards) fs::remove(shard->path(), ignored);
    throw;
  }
  return manifest;
}

}  // namespace assay
