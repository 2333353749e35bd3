// Keys and values of texts being generated, as attention reads them (after QK-norm and RoPE): a new
// token then costs one row per layer instead of the whole text.
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
  // With Backend::kGpu only.
  View<int32_t, 1> row;   // (N)
  View<float, 2> logits;  // (texts, V)

  // rows: the largest number of tokens per call.
  void plan(MemoryPlan& plan, const ModelConfig& config, Backend backend, int64_t texts,
            int64_t positions, int64_t rows);
};

// An Extension in the form that the ops take.
struct ExtensionRows {
  std::vector<int32_t> position, cache_row;  // of each token
  std::vector<int32_t> last;                 // the last token of each part
  // A part's prefix is its text in the cache. With piece > 0 a part is split into segments of at
  // most `piece` rows; each reads the part's earlier rows from the cache, where they are written
  // before attention begins.
  std::vector<AttentionSegment> segment;

  ExtensionRows(const Extension& extension, int64_t texts, int64_t positions, int64_t piece);
};

}  // namespace assay
