// Whether a run was trained on the data that its cell reads now. The fields of a configuration name
// files, and the files of a name may hold another text: in another folder, or after they were
// prepared again.
#pragma once

#include <string>

#include "lab/runs/recorded_data.h"

namespace assay {

// "data x_train_0.bin: c30bc7e4d5f6 -> 960823d0f1a2": the first file, by its name without folders,
// of other content; "none" where one side lacks a shard. "" if there is none, or one side is empty.
std::string data_change(const FileHashes& before, const FileHashes& now);

}  // namespace assay
