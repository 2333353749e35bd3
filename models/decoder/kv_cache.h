// Keys and values of texts that are generated, as attention reads them (after QK-norm and RoPE), so
// that a new token costs one row of every layer and not the whole text again.
//
//   row of position p of text t, in every layer: t * positions + p
//
// Planned only for generation (Model::plan_cache).
#pragma once

#include <vector>

#include "engine/config/config.h"
#include "engine/model.h"

namespace assay {

template <typename T>
struct KvCache {
  int64_t texts = 0, positions = 0;
  std::vector<View<T, 2>> layer;  // (texts * positions, 2 Hkv D): the k heads, then the v heads
  // With Backend::kGpu.
  View<int32_t, 1> row;   // (N)
  View<float, 2> logits;  // (texts, V)

  // rows: the largest number of tokens of a call.
  void plan(MemoryPlan& plan, const ModelConfig& config, Backend backend, int64_t texts,
            int64_t positions, int64_t rows);
};

// An Extension as the ops take it.
struct ExtensionRows {
  std::vector<int32_t> position, cache_row;  // of each token
  std::vector<int32_t> last;                 // the last token of each part
  // What a part sees: its text in the cache, then its own rows; cut into pieces of so many rows
  // where that is more than 0: a piece finds the part's earlier rows in the cache, where they are
  // before attention begins.
  std::vector<AttentionSegment> segment;

  ExtensionRows(const Extension& extension, int64_t texts, int64_t positions, int64_t piece);
};

}  // namespace assay
