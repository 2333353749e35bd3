// manifest.json beside the shards of a corpus: what each file holds and its SHA-256, which
// tokenizer made it, and which files the text came from. It is written last, so a folder with a
// manifest is complete.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/hash_files.h"

namespace assay {

// An input file, as named by the user and stored on the disk.
struct SourceEntry {
  std::string file;
  int64_t bytes = 0;
  int64_t documents = 0;  // that are in the corpus, without empty ones and dropped duplicates
  int64_t bad_lines = 0;  // skipped lines of JSONL
  int64_t not_utf8 = 0;   // documents that are not UTF-8
  std::string sha256;
};

struct ShardEntry {
  std::string file;   // name inside the folder
  std::string split;  // "train" or "val"
  int64_t tokens = 0;
  int64_t documents = 0;  // that begin in this shard
  std::string sha256;
};

struct Manifest {
  std::string tokenizer_file;    // name inside the folder
  std::string tokenizer_sha256;  // tokenizer_hash()
  std::string pre_split = "";    // pre_split_tables() where it was written; "" in older ones
  int64_t vocab_size = 0;
  int64_t eot_id = 0;
  int64_t text_bytes = 0;       // bytes of text encoded, of both splits
  std::string validation = "";  // "share 0.005 by hash", "every 20", "own text", "none"
  std::optional<uint64_t> shuffle_seed = {};  // absent: in the order of the files
  std::vector<SourceEntry> sources = {};      // empty for generated text
  std::vector<ShardEntry> shards;

  int64_t tokens(const std::string& split) const;
  int64_t documents(const std::string& split) const;
};

constexpr const char* kManifestName = "manifest.json";

// Whether the folder has a manifest.json of a corpus, perhaps a damaged one. Other programs write
// JSON of that name too: what has no "format" of ours is theirs.
bool has_manifest(const std::string& folder);

// UserError when folder/manifest.json is missing, damaged, another program's, or lists files
// outside of the folder.
Manifest read_manifest(const std::string& folder);
// The same of a file with another name.
Manifest read_manifest_file(const std::string& path);
std::string manifest_text(const Manifest& manifest);

// UserError with both hashes for a shard that its folder's manifest lists with another hash.
void require_manifest_hashes(const HashedFiles& files);

// Compares the folder's files with the manifest. One line for each that is missing or has another
// hash or token count, or is another tokenizer; empty if all match.
std::vector<std::string> verify_corpus(const Manifest& manifest, const std::string& folder);

// *.bin files in the folder that the manifest does not list, which a pattern would find all the
// same.
std::vector<std::string> unlisted_shards(const Manifest& manifest, const std::string& folder);

}  // namespace assay
