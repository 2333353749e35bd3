#include "models/decoder/scratch.h"

#include <algorithm>

#include "base/bf16.h"
#include "ops/attention.h"
#include "ops/dispatch.h"
#include "ops/qk_norm.h"
#include "ops/rmsnorm.h"
#include "ops/router.h"

namespace assay {

template <typename T>
void Scratch<T>::plan(MemoryPlan& plan, const ModelConfig& c, const BatchShape& largest,
                      Purpose purpose, Backend backend, int64_t expert_rows) {
  const int64_t tokens = largest.tokens();
  plan.add(Section::kScratch, "branch", branch, {tokens, c.hidden});
  // score() also uses it, for the head's input rows.
  plan.add(Section::kScratch, "dnorm", dnorm, {tokens, c.hidden});
  if (purpose == Purpose::kTraining) plan_backward(plan, c, largest, backend, expert_rows);
  if (!c.moe || moe_blocks(c) == 0) return;
  const MoeConfig& m = *c.moe;
  if (m.shared > 0) plan.add(Section::kScratch, "shared_out", shared_out, {tokens, c.hidden});
  // The largest number of pieces over all auxiliary-loss scopes.
  const RouterSettings by_sequence{
      .aux = RouterAux::kGates, .scope = AuxScope::kSequence, .sequence = largest.sequence};
  const int64_t pieces = std::max(router_pieces(tokens, {}), router_pieces(tokens, by_sequence));
  plan.add(Section::kScratch, "count_partial", count_partial, {pieces, m.experts});
  plan.add(Section::kScratch, "share_partial", share_partial, {pieces, m.experts});
  plan.add(Section::kScratch, "measure_partial", measure_partial,
           {pieces, int64_t{kRouterMeasures}});
  plan.add(Section::kScratch, "dispatch_partial", dispatch_partial,
           {dispatch_pieces(tokens), m.experts});
}

template <typename T>
void Scratch<T>::plan_backward(MemoryPlan& plan, const ModelConfig& c, const BatchShape& largest,
                               Backend backend, int64_t expert_rows) {
  const int64_t tokens = largest.tokens();
  const auto add2 = [&](const char* name, View<T, 2>& view, int64_t rows, int64_t width) {
    plan.add(Section::kScratch, name, view, {rows, width});
  };
  const int64_t q_width = c.resolved_head_dim() * c.heads;
  const int64_t qkv_width = q_width + 2 * c.resolved_head_dim() * c.resolved_kv_heads();
  add2("dresid", dresid, tokens, c.hidden);
  if (c.attention_gain != AttentionGain::kOne) add2("dbranch", dbranch, tokens, c.hidden);
  plan.add(Section::kScratch, "norm_partial", norm_partial,
           {rmsnorm_backward_blocks(tokens), c.hidden});
  add2("dqkv", dqkv, tokens, qkv_width);
  if (c.qk_norm) {
    plan.add(Section::kScratch, "qk_norm_partial", qk_norm_partial,
             {qk_norm_backward_blocks(tokens), 2 * c.resolved_head_dim()});
  }
  plan.add(Section::kScratch, "attention_partial", attention_partial,
           {attention_backward_scratch(backend, {largest.batch, largest.sequence, c.heads,
                                                 c.resolved_kv_heads(), c.resolved_head_dim()})});
  add2("datt", datt, tokens, q_width);
  int64_t inner = moe_blocks(c) < c.layers ? tokens * c.ffn : 0;
  if (c.moe && moe_blocks(c) > 0) {
    const MoeConfig& m = *c.moe;
    const int64_t assignments = tokens * m.top_k;
    const int64_t at_once = expert_rows > 0 ? expert_rows : assignments;
    inner = std::max({inner, at_once * m.expert_ffn, tokens * m.shared * m.expert_ffn});
    add2("dexpert_out", dexpert_out, assignments, c.hidden);
    add2("dexpert_in", dexpert_in, assignments, c.hidden);
    plan.add(Section::kScratch, "dgate", dgate, {tokens, m.top_k});
    add2("dlogits", dlogits, tokens, m.experts);
    plan.add(Section::kScratch, "dchosen", dchosen, {tokens, m.top_k});
  }
  plan.add(Section::kScratch, "dgate_up", dgate_up, {2 * inner});
  plan.add(Section::kScratch, "dh", dh, {inner});
}

template struct Scratch<float>;
template struct Scratch<bf16>;

}  // namespace assay
