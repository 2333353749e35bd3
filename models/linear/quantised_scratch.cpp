#include "models/linear/quantised_scratch.h"

#include <algorithm>
#include <string>

namespace assay {

void QuantScratch::plan(MemoryPlan& plan, const ModelConfig& c, int64_t tokens) {
  int64_t elements = 0, pieces = 0;
  const auto weight = [&](int64_t experts, int64_t out, int64_t in) {
    pieces = std::max(pieces, fake_quantise_pieces(experts * out, experts, in));
  };
  const auto reach = [&](int64_t rows, int64_t segments, int64_t width) {
    elements = std::max(elements, rows * width);
    pieces = std::max(pieces, fake_quantise_pieces(rows, segments, width));
  };
  const int64_t head = c.resolved_head_dim();
  weight(1, (c.heads + 2 * c.resolved_kv_heads()) * head, c.hidden);
  weight(1, c.hidden, c.heads * head);
  reach(tokens, 1, c.hidden);
  reach(tokens, 1, c.heads * head);
  reach(tokens, 1, (c.heads + 2 * c.resolved_kv_heads()) * head);
  if (moe_blocks(c) < c.layers) {
    reach(tokens, 1, 2 * c.ffn);
    weight(1, 2 * c.ffn, c.hidden);
    weight(1, c.hidden, c.ffn);
  }
  if (moe_blocks(c) > 0) {
    const MoeConfig& m = *c.moe;
    for (const int64_t width : {c.hidden, m.expert_ffn, 2 * m.expert_ffn}) {
      reach(tokens * m.top_k, m.experts, width);
    }
    weight(m.experts, 2 * m.expert_ffn, c.hidden);
    weight(m.experts, c.hidden, m.expert_ffn);
    const int64_t shared = m.shared * m.expert_ffn;
    if (shared > 0) {
      reach(tokens, 1, 2 * shared);
      weight(1, 2 * shared, c.hidden);
      weight(1, c.hidden, shared);
    }
  }
  const auto add = [&](const std::string& name, DecodedOperand& operand) {
    plan.add(Section::kScratch, "quantised." + name, operand.y, {elements});
    plan.add(Section::kScratch, "quantised." + name + ".scale", operand.tensor_scale, {2});
  };
  add("row", row);
  add("column", column);
  add("other", other);
  plan.add(Section::kScratch, "quantised.amax", amax, {2});
  plan.add(Section::kScratch, "quantised.partial", partial, {pieces, 2 * kFakeMeasures});
  plan.add(Section::kScratch, "quantised.not_finite", not_finite, {1});
  plan.add(Section::kScratch, "quantised.draw", draw, {1});
}

}  // namespace assay
