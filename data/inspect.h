// Summarises a shard, to see at a glance whether it is the expected data.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/shard.h"

namespace assay {

struct ShardDocuments {
  int64_t number = 0;         // of EOT ids, each of which begins one
  int64_t median_tokens = 0;  // of one, without its EOT id
};

struct ShardSummary {
  int64_t tokens = 0;
  int token_bytes = 0;
  std::optional<ShardDocuments> documents;  // nullopt: the EOT id is unknown
  int64_t largest_id = -1;
  int64_t distinct_ids = 0;
  double unigram_nats = 0;  // entropy of the ids: the loss of a model that knows only frequencies
  std::vector<std::pair<int32_t, int64_t>> most_frequent;  // id, count
  std::vector<int32_t> first;                              // the first tokens, for a sample
};

// Lists the `top` most frequent ids and the `sample` first tokens. eot_id -1: unknown.
ShardSummary inspect_shard(const Shard& shard, int64_t eot_id, int64_t top, int64_t sample);

}  // namespace assay
