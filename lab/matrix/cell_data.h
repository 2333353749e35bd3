// Whether a run was trained on the data that its cell reads now. The fields of a configuration name
// files, and the files of a name may hold another text: in another folder, or after they were
// prepared again.
#pragma once

#include <optional>
#include <string>

#include "engine/config/differences.h"
#include "lab/runs/recorded_data.h"

namespace assay {

// Of a run, or of a cell as its files are now.
struct DataHashes {
  FileHashes files = {};
  std::string tokenizer_sha256 = {};  // as recorded_tokenizer()
};

// As meta.json has them; empty without one.
DataHashes data_hashes_of(const std::string& run);

// "data x_train_0.bin: c30bc7e4d5f6 -> 960823d0f1a2": the first file, by its name without folders,
// of other content; "none" where one side lacks a shard. nullopt if there is none, or one side is
// empty. A tokenizer that says the same in other bytes is no difference.
std::optional<FieldDifference> data_change(const DataHashes& before, const DataHashes& now);

}  // namespace assay
