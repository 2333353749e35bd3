// The data of a run, from its configuration: shards, tokenizer facts, hashes. Builds the embedded
// corpus when it is asked for.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/config/config.h"

namespace assay {

// Validation shards of one source of a mixture.
struct SourceShards {
  std::string name;
  std::vector<std::string> files;
};

struct RunData {
  std::vector<std::string> train, val;
  std::vector<MixtureSource>
      mixture;  // data.mixture: the files of `train` by source; empty without it
  // Of a mixture: the files of `val` that lie where the files of one source lie, and of no other.
  // Sources without a whole sequence of them are left out.
  std::vector<SourceShards> source_val;
  std::string tokenizer;             // file; "" = none given
  std::vector<int32_t> token_bytes;  // of each id, 0 for special ones; empty without a tokenizer
  int32_t eot = -1;                  // -1 without a tokenizer
  int32_t mask_id = -1;  // targets equal to it are not counted: eot with data.mask_eos, or none
};

// UserError: no data, a file in two sources, files missing, a tokenizer larger than the model's
// vocabulary or not that of the shards, mask_eos without a tokenizer.
RunData resolve_data(const Config& config);
// The training data; ranks and warnings are the caller's.
LoaderConfig loader_config(const Config& config, const RunData& data);
// What a mixture comes to in config.run.steps steps, as a table; "" without one.
std::string mixture_table(Loader& loader, const Config& config);
// UserError where `run` holds the tokenizer that its model came with, and the data is in another
// one's tokens.
void require_tokenizer_of_run(const std::string& run, const Config& config, const RunData& data);
// SHA-256 by file.
std::map<std::string, std::string> data_hashes(const RunData& data);

}  // namespace assay
