#include "data/inspect.h"

#include <algorithm>
#include <cmath>
#include <unordered_map>

namespace assay {

ShardSummary inspect_shard(const Shard& shard, int64_t eot_id, int64_t top, int64_t sample) {
  ShardSummary summary;
  summary.tokens = shard.tokens();
  summary.token_bytes = shard.token_bytes();
  std::vector<int64_t> small(1 << 16, 0);  // counts of ids below 2^16; larger ones are rare
  std::unordered_map<int32_t, int64_t> large;
  std::vector<int64_t> lengths;  // of the documents
  int64_t document_at = -1;      // where the current one begins
  // Accepts every id that fits into int32: shards with wrong ids can be inspected too.
  for_each_piece(shard, INT32_MAX, [&](int64_t begin, View<const int32_t, 1> piece) {
    for (int64_t i = 0; i < piece.size(); ++i) {
      if (piece[i] == eot_id) {
        if (document_at >= 0) lengths.push_back(begin + i - document_at);
        document_at = begin + i + 1;
      }
      if (begin + i < sample) summary.first.push_back(piece[i]);
      if (piece[i] < 1 << 16) {
        ++small[static_cast<size_t>(piece[i])];
      } else {
        ++large[piece[i]];
      }
    }
  });
  if (document_at >= 0) lengths.push_back(summary.tokens - document_at);
  if (eot_id >= 0) summary.documents = {.number = static_cast<int64_t>(lengths.size())};
  if (!lengths.empty()) {
    const auto middle = lengths.begin() + static_cast<long>(lengths.size() / 2);
    std::nth_element(lengths.begin(), middle, lengths.end());
    summary.documents->median_tokens = *middle;
  }
  std::vector<std::pair<int32_t, int64_t>> counts(large.begin(), large.end());
  for (size_t id = 0; id < small.size(); ++id)
    if (small[id] > 0) counts.emplace_back(static_cast<int32_t>(id), small[id]);
  std::sort(counts.begin(), counts.end(), [](const auto& a, const auto& b) {
    return a.second != b.second ? a.second > b.second : a.first < b.first;
  });
  summary.distinct_ids = static_cast<int64_t>(counts.size());
  for (const auto& [id, count] : counts) {
    const double share = static_cast<double>(count) / static_cast<double>(summary.tokens);
    summary.unigram_nats -= share * std::log(share);
    summary.largest_id = std::max<int64_t>(summary.largest_id, id);
  }
  counts.resize(std::min(counts.size(), static_cast<size_t>(top)));
  summary.most_frequent = std::move(counts);
  return summary;
}

}  // namespace assay
