// The rows of a batch of texts that are computed after the attention of the last block: the scored
// rows. Of the others the last block computes keys and values only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model.h"

namespace assay {

struct ScoredRows {
  std::vector<int32_t> kept;  // scored rows, ascending and distinct; empty: all rows
  std::vector<int32_t> row;   // TextBatch::row; indices into `kept` unless that is empty
  // TextBatch::segment with query_begin at its first kept row, or at its end if none is kept; empty
  // if `kept` is.
  std::vector<AttentionSegment> segment;

  explicit ScoredRows(const TextBatch& batch);
};

}  // namespace assay
