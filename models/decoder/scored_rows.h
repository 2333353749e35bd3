// Which rows of a batch of texts go on behind the attention of the last block: those whose
// prediction is asked. Of the others the last block needs keys and values only.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/model.h"

namespace assay {

struct ScoredRows {
  std::vector<int32_t> kept;  // rows, ascending, each once; empty: all of them
  std::vector<int32_t> row;   // TextBatch::row, counted in `kept`
  // TextBatch::segment with the first kept row as query_begin, or its end where no row of it is
  // kept; empty with `kept`.
  std::vector<AttentionSegment> segment;

  explicit ScoredRows(const TextBatch& batch);
};

}  // namespace assay
