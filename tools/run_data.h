// The data of a run, from its configuration: shards, tokenizer facts, hashes. Builds the embedded corpus when it is asked for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/config.h"

namespace assay {

struct RunData {
  std::vector<std::string> train, val;
  std::string tokenizer;             // file; "" = none given
  std::vector<int32_t> token_bytes;  // of each id, 0 for special ones; empty without a tokenizer
  int32_t eot = -1;                  // -1 without a tokenizer
};

// UserError: no data, files missing, a tokenizer larger than the model's vocabulary, mask_eos without a tokenizer.
RunData resolve_data(const Config& config);
// SHA-256 by file.
std::map<std::string, std::string> data_hashes(const RunData& data);

}  // namespace assay
