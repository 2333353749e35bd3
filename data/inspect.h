// What is in a shard: counts that tell at a glance whether it is the data one thinks it is.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/shard.h"

namespace assay {

struct ShardSummary {
  int64_t tokens = 0;
  int token_bytes = 0;
  int64_t documents = 0;  // EOT ids; 0 when the EOT id is not known
  int64_t largest_id = -1;
  int64_t distinct_ids = 0;
  double unigram_nats = 0;  // entropy of the ids: what a model that knows frequencies alone reaches
  std::vector<std::pair<int32_t, int64_t>> most_frequent;  // id, count
  std::vector<int32_t> first;                              // the first tokens, for a sample
};

// eot_id -1: not known. `top` most frequent ids, `sample` first tokens.
ShardSummary inspect_shard(const Shard& shard, int64_t eot_id, int64_t top, int64_t sample);

}  // namespace assay
