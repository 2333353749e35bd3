#include "models/decoder/scored_rows.h"

#include <algorithm>

#include "base/check.h"

namespace assay {

ScoredRows::ScoredRows(const TextBatch& batch) {
  const int64_t rows = batch.token.dim[0], asked = batch.row.dim[0];
  row.assign(batch.row.data, batch.row.data + asked);
  if (batch.last_block == TextBatch::LastBlock::kAllRows) return;
  std::vector<int32_t> place(static_cast<size_t>(rows), -1);
  for (const int32_t r : row) {
    CHECK(r >= 0 && r < rows, "scored row %d of %ld", int(r), long(rows));
    place[size_t(r)] = 0;
  }
  for (int64_t r = 0; r < rows; ++r) {
    if (place[size_t(r)] < 0) continue;
    place[size_t(r)] = int32_t(kept.size());
    kept.push_back(int32_t(r));
  }
  if (int64_t(kept.size()) == rows) {
    kept.clear();
    return;
  }
  for (int32_t& r : row) r = place[size_t(r)];
  for (int64_t i = 0; i < batch.segment.dim[0]; ++i) {
    AttentionSegment s = batch.segment[i];
    const auto first = std::lower_bound(kept.begin(), kept.end(), int32_t(s.begin));
    s.query_begin = first == kept.end() ? s.end : std::min<int64_t>(*first, s.end);
    segment.push_back(s);
  }
}

}  // namespace assay
