// The data of a run, from its configuration: shards, tokenizer facts, hashes. Builds the embedded
// corpus if data.synth is set.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "data/loader.h"
#include "data/synth_shards.h"
#include "engine/config/config.h"
#include "engine/run/read_file.h"

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
  // For a mixture: the files of `val` in the folders of exactly one source. Sources with less than
  // one sequence of validation tokens are left out.
  std::vector<SourceShards> source_val;
  std::string tokenizer;         // file or folder; "" = none given
  std::string tokenizer_sha256;  // tokenizer_hash(); "" without a tokenizer
  int64_t tokenizer_vocab = 0;   // 0 without a tokenizer
  // Bytes per id of the tokenizer, 0 for special ids; empty without one.
  std::vector<int32_t> token_bytes;
  int32_t eot = -1;      // -1 without a tokenizer
  int32_t mask_id = -1;  // targets equal to it are not counted: eot with data.mask_eos, or none
  HashedFiles hashed;    // of train, val and tokenizer; empty before hash_data()
  double hash_seconds = 0;
};

// The embedded corpus of data.synth.
SynthShards shards_of(const SynthConfig& synth);

// UserError: no data, a file in two sources, files missing, a tokenizer that is larger than the
// model's vocabulary or not that of the shards, without one shards of different tokenizers,
// mask_eos without a tokenizer.
RunData resolve_data(const Config& config);
// The same without `train` and `mixture`, whose files may be gone.
RunData evaluation_data(const Config& config);
// The ids that the shards may have: those of the model's rows, or if data.check_tokenizer is on and
// there is a tokenizer, those of its tokens.
IdLimit id_limit(const Config& config, const RunData& data);
// The loader of the training data; the caller sets ranks and `warn`.
LoaderConfig loader_config(const Config& config, const RunData& data);
// A table of what config.run.steps steps draw from each source of a mixture; "" without one.
std::string mixture_table(Loader& loader, const Config& config);
// "training data: 120,000 tokens, 2.10 passes in 500 steps"; "" of a mixture.
std::string passes_text(const Loader& loader, const Config& config);
// A warning if those are so many that they teach less than new text would; "" otherwise.
std::string many_passes_text(const Loader& loader, const Config& config);
// UserError when run.steps, which are known, take more than data.max_epochs passes over the data.
void require_enough_data(Loader& loader, const Config& config);
// UserError when `run` holds a tokenizer.json (imported models do) and the data was made with
// another tokenizer, or when the model's tokenizer was left behind and that of the data is known.
void require_tokenizer_of_run(const std::string& run, const Config& config, const RunData& data);
// SHA-256 by file, and how each was obtained. After hash_data() (session/data_evidence.h).
std::map<std::string, std::string> data_hashes(const RunData& data);
std::map<std::string, std::string> data_hash_origins(const RunData& data);
// The files in the order in which a run reads them. After hash_data().
std::vector<ReadFile> read_files(const RunData& data);

}  // namespace assay
