#include "models/decoder/kv_cache.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace assay {

template <typename T>
void KvCache<T>::plan(MemoryPlan& plan, const ModelConfig& config, Backend backend, int64_t texts_,
                      int64_t positions_, int64_t rows) {
  texts = texts_;
  positions = positions_;
  CHECK(texts > 0 && texts <= rows &&
            texts * positions <= int64_t{std::numeric_limits<int32_t>::max()},
        "kv_cache: %ld texts of %ld positions, %ld rows per call", long(texts), long(positions),
        long(rows));
  layer.resize(static_cast<size_t>(config.layers));
  const int64_t width = 2 * config.resolved_kv_heads() * config.resolved_head_dim();
  for (size_t l = 0; l < layer.size(); ++l) {
    plan.add(Section::kActivations, "blocks." + std::to_string(l) + ".attn.cache", layer[l],
             {texts * positions, width});
  }
  if (backend == Backend::kCpu) return;
  plan.add(Section::kScratch, "cache.row", row, {rows});
  plan.add(Section::kScratch, "cache.logits", logits, {texts, config.vocab_size});
}

ExtensionRows::ExtensionRows(const Extension& extension, int64_t texts, int64_t positions,
                             int64_t piece) {
  int64_t begin = 0;
  for (int64_t i = 0; i < extension.part.dim[0]; ++i) {
    const TextPart& p = extension.part[i];
    CHECK(p.text >= 0 && p.text < texts && p.position >= 0 && p.tokens > 0 &&
              p.position + p.tokens <= positions,
          "extend: part %ld: text %ld of %ld, %ld tokens from position %ld of %ld", long(i),
          long(p.text), long(texts), long(p.tokens), long(p.position), long(positions));
    const int64_t text = p.text * positions;
    for (int64_t t = 0; t < p.tokens; ++t) {
      position.push_back(static_cast<int32_t>(p.position + t));
      cache_row.push_back(static_cast<int32_t>(text + p.position + t));
    }
    const int64_t rows = piece > 0 ? piece : p.tokens;
    for (int64_t t = 0; t < p.tokens; t += rows) {
      segment.push_back({.begin = begin + t,
                         .end = begin + std::min(p.tokens, t + rows),
                         .prefix_begin = text,
                         .prefix_end = text + p.position + t});
    }
    begin += p.tokens;
    last.push_back(static_cast<int32_t>(begin - 1));
  }
  CHECK(begin == extension.token.dim[0], "extend: parts have %ld tokens, got %ld", long(begin),
        long(extension.token.dim[0]));
}

template struct KvCache<float>;
template struct KvCache<bf16>;

}  // namespace assay
