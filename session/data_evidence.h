// What a run reads, identified by its bytes: hashes of all shards and the tokenizer before the
// first step, compared with the manifests beside them; and warnings about the data.
#pragma once

#include <string>
#include <vector>

#include "session/run_data.h"

namespace assay {

// Hashes all files of the data into data.hashed. UserError with both hashes when a shard is not the
// one that its manifest lists, and when the validation data is not config's data.reference.
void hash_data(const Config& config, RunData& data);

// One line for each thing that a user hardly means: files that are both training and validation
// data, training text that is read twice in a pass, a vocabulary that the tokenizer does not fill,
// validation data that is never read. Call after hash_data().
std::vector<std::string> data_warnings(const Config& config, const RunData& data);

// "validation: the first 65,536 of 5,012,480 tokens, in the order of the files (eval.tokens)"; ""
// if all whole sequences are read.
std::string validation_text(const Config& config, const RunData& data);

}  // namespace assay
