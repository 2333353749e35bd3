// What a run read each of its files of data for, told from the patterns of its configuration and
// the hashes of its meta.json, which have no roles.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"

namespace assay {

struct DataFile {
  std::string name;  // without its folder
  std::string sha256;
  std::string text() const { return name + " " + sha256.substr(0, 12); }
};

struct DataRoles {
  std::vector<DataFile> train, val;  // in the order of their paths, which is that of reading
};

// A file of the tokenizer, told by its name: data.tokenizer itself, or tokenizer.json, vocab.json
// or merges.txt in its folder, which may hold shards too.
bool is_tokenizer_file(const RunRecord& run, const std::string& path);

// Every shard, whatever its role; in the order of their paths.
std::vector<DataFile> shards_of(const RunRecord& run);
// Those of `files` that `others` lacks, by content; a content that is there twice counts twice.
std::vector<DataFile> without(const std::vector<DataFile>& files, std::vector<DataFile> others);
// The place of the first file whose content is not that of its place in the other list; nullopt if
// there is none.
std::optional<size_t> first_difference(const std::vector<DataFile>& a,
                                       const std::vector<DataFile>& b);
// "x.bin 960823d0f1a2"; "no further shard" at the end.
std::string shard_text(const std::vector<DataFile>& files, size_t at);

// A file may have both roles. nullopt if they are not known: a file that no pattern names, or a
// role without a file, as where the data was moved after training.
std::optional<DataRoles> data_roles(const RunRecord& run);

// Equal for runs whose shards have the same content, whatever their names and folders; "" where
// that is not recorded.
std::string data_identity(const RunRecord& run);
// "training data of b is x.bin 960823d0f1a2, of a x.bin c30bc7e4d5f6": the first shard of other
// content, of the validation also in another place; "" if there is none, or one of the runs does
// not record its data.
std::string different_shards(const RunRecord& a, const RunRecord& b);

// The validation files whose content is in a training file too.
std::vector<DataFile> trained_validation(const DataRoles& roles);

// Their names, "a.bin, b.bin"; "" if
// there are none or the roles are not known.
std::string trained_validation_files(const RunRecord& run);

// A sentence on them for the notes of a table; "" if there are none.
std::string trained_validation_text(const RunRecord& run);

}  // namespace assay
