#include "models/decoder/sublayers.h"

#include <algorithm>
#include <cmath>

#include "base/bf16.h"
#include "models/parameters/table.h"
#include "ops/attention.h"
#include "ops/dispatch.h"
#include "ops/embedding.h"
#include "ops/kv_cache_write.h"
#include "ops/linear.h"
#include "ops/qk_norm.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/varlen_attention.h"

namespace assay {

template <typename T>
void Scratch<T>::plan(MemoryPlan& plan, const ModelConfig& c, const BatchShape& largest,
                      Purpose purpose) {
  const int64_t tokens = largest.tokens();
  plan.add(Section::kScratch, "branch", branch, {tokens, c.hidden});
  // score() also uses it, for the head's input rows.
  plan.add(Section::kScratch, "dnorm", dnorm, {tokens, c.hidden});
  if (purpose == Purpose::kTraining) plan_backward(plan, c, largest);
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
void Scratch<T>::plan_backward(MemoryPlan& plan, const ModelConfig& c, const BatchShape& largest) {
  const int64_t tokens = largest.tokens();
  const auto add2 = [&](const char* name, View<T, 2>& view, int64_t rows, int64_t width) {
    plan.add(Section::kScratch, name, view, {rows, width});
  };
  const int64_t q_width = c.resolved_head_dim() * c.heads;
  const int64_t qkv_width = q_width + 2 * c.resolved_head_dim() * c.resolved_kv_heads();
  add2("dresid", dresid, tokens, c.hidden);
  add2("dbranch", dbranch, tokens, c.hidden);
  plan.add(Section::kScratch, "norm_partial", norm_partial,
           {rmsnorm_backward_blocks(tokens), c.hidden});
  add2("dqkv", dqkv, tokens, qkv_width);
  if (c.qk_norm) {
    plan.add(Section::kScratch, "qk_norm_partial", qk_norm_partial,
             {qk_norm_backward_blocks(tokens), 2 * c.resolved_head_dim()});
  }
  plan.add(Section::kScratch, "attention_partial", attention_partial,
           {attention_backward_scratch({largest.batch, largest.sequence, c.heads,
                                        c.resolved_kv_heads(), c.resolved_head_dim()})});
  add2("datt", datt, tokens, q_width);
  int64_t inner = moe_blocks(c) < c.layers ? tokens * c.ffn : 0;
  if (c.moe && moe_blocks(c) > 0) {
    const MoeConfig& m = *c.moe;
    const int64_t assignments = tokens * m.top_k;
    inner = std::max({inner, assignments * m.expert_ffn, tokens * m.shared * m.expert_ffn});
    add2("dexpert_out", dexpert_out, assignments, c.hidden);
    add2("dexpert_in", dexpert_in, assignments, c.hidden);
    plan.add(Section::kScratch, "dgate", dgate, {tokens, m.top_k});
    add2("dlogits", dlogits, tokens, m.experts);
    plan.add(Section::kScratch, "dchosen", dchosen, {tokens, m.top_k});
  }
  plan.add(Section::kScratch, "dgate_up", dgate_up, {2 * inner});
  plan.add(Section::kScratch, "dh", dh, {inner});
}

template <typename T>
void ResidualNorm<T>::plan(MemoryPlan& plan, const std::string& name, const ModelConfig& config,
                           int64_t tokens) {
  plan.add(Section::kActivations, name + ".resid", resid, {tokens, config.hidden});
  plan.add(Section::kActivations, name + ".y", y, {tokens, config.hidden});
  plan.add(Section::kActivations, name + ".rstd", rstd, {tokens});
  eps = static_cast<float>(config.norm_eps);
}

template <typename T>
void ResidualNorm<T>::bind(const ParameterStore<T>& store, const std::string& name) {
  weight = store.vector(name);
  dweight = store.vector_gradient(name);
}

template <typename T>
void ResidualNorm<T>::forward(Exec on, const ResidualStream<T>& in, int64_t tokens,
                              View<float, 1> amax) const {
  const View<T, 2> x = in.resid.rows(0, tokens);
  if (in.branch.empty()) {
    rmsnorm_forward<T>(on, {.y = y.rows(0, tokens),
                            .rstd = rstd.rows(0, tokens),
                            .amax = amax,
                            .x = x,
                            .weight = weight,
                            .eps = eps});
  } else {
    rmsnorm_forward<T>(on, {.y = y.rows(0, tokens),
                            .rstd = rstd.rows(0, tokens),
                            .resid = resid.rows(0, tokens),
                            .amax = amax,
                            .x = x,
                            .branch = in.branch.rows(0, tokens),
                            .weight = weight,
                            .gain = in.gain,
                            .eps = eps});
  }
}

template <typename T>
void ResidualNorm<T>::backward(Exec on, const Scratch<T>& s, const ResidualStream<T>& in,
                               int64_t tokens) const {
  rmsnorm_backward<T>(on, {.dresid = s.dresid.rows(0, tokens),
                           .dbranch = in.branch.empty() ? View<T, 2>{} : s.dbranch.rows(0, tokens),
                           .amax = in.dbranch_amax,
                           .dweight = dweight,
                           .partial = s.norm_partial,
                           .dy = s.dnorm.rows(0, tokens),
                           .resid = resid.rows(0, tokens),
                           .weight = weight,
                           .rstd = rstd.rows(0, tokens),
                           .gain = in.gain});
}

namespace {

template <typename T>
class AttentionSublayer final : public Sublayer<T> {
 public:
  AttentionSublayer(const BlockParts<T>& parts, int64_t layer, const View<float, 2>& cos,
                    const View<float, 2>& sin)
      : config_(parts.config),
        layer_(layer),
        name_("blocks." + std::to_string(layer) + ".attn"),
        s_(parts.scratch),
        cache_(parts.cache),
        cos_(cos),
        sin_(sin),
        gain_(config_.attention_gain == "depth"
                  ? static_cast<float>(1.0 / std::sqrt(2.0 * double(config_.layers)))
                  : 1.0f),
        qkv_weight_(name_ + ".qkv", parts.site(ProductRole::kAttention, layer)),
        out_weight_(name_ + ".out", parts.site(ProductRole::kAttention, layer)) {}

  SublayerKind kind() const override { return SublayerKind::kAttention; }
  void plan(MemoryPlan& plan, int64_t tokens) override {
    const int64_t heads = config_.heads, kv_heads = config_.resolved_kv_heads();
    const int64_t head_dim = config_.resolved_head_dim();
    const int64_t qkv_width = (heads + 2 * kv_heads) * head_dim;
    norm_.plan(plan, name_ + ".norm", config_, tokens);
    plan.add(Section::kActivations, name_ + ".qkv", qkv_, {tokens, qkv_width});
    if (config_.qk_norm) {
      plan.add(Section::kActivations, name_ + ".qk_raw", qk_raw_,
               {tokens, (heads + kv_heads) * head_dim});
      plan.add(Section::kActivations, name_ + ".qk_rstd", qk_rstd_, {tokens, heads + kv_heads});
    }
    plan.add(Section::kActivations, name_ + ".att", att_, {tokens, heads * head_dim});
    plan.add(Section::kActivations, name_ + ".lse", lse_, {tokens * heads});
  }

  void bind(const ParameterStore<T>& store) override {
    norm_.bind(store, name_ + ".norm");
    qkv_weight_.bind(store);
    out_weight_.bind(store);
    if (config_.qk_norm) {
      q_norm_ = store.vector(name_ + ".q_norm");
      k_norm_ = store.vector(name_ + ".k_norm");
      dq_norm_ = store.vector_gradient(name_ + ".q_norm");
      dk_norm_ = store.vector_gradient(name_ + ".k_norm");
    }
  }

  ResidualStream<T> forward(Exec on, const ResidualStream<T>& in, const BatchShape& shape,
                            Pass) override {
    const int64_t n = shape.tokens();
    norm_.forward(on, in, n, y_amax());
    const View<T, 2> qkv = qkv_.rows(0, n);
    qkv_weight_.forward(on, s_.quant, norm_.y.rows(0, n), qkv, y_amax());
    if (config_.qk_norm) qk_norm(on, n);
    rope_forward<T>(on, {.qkv = qkv,
                         .cos = cos_,
                         .sin = sin_,
                         .heads = config_.heads,
                         .kv_heads = config_.resolved_kv_heads(),
                         .head_dim = config_.resolved_head_dim(),
                         .sequence = shape.position.empty() ? shape.sequence : cos_.dim[0],
                         .position = shape.position});
    const bool all = shape.kept.dim[0] == 0 || layer_ + 1 < config_.layers;
    attend(on, shape, all ? shape.segment : shape.last_segment, qkv);
    if (!all) return kept_branch(on, shape.kept);
    out_weight_.forward(on, s_.quant, att_.rows(0, n), s_.branch.rows(0, n),
                        shape.segment.empty() ? att_amax() : View<float, 1>{});
    return {norm_.resid, s_.branch, gain_, dbranch_amax()};
  }

  void backward(Exec on, const ResidualStream<T>& in, const BatchShape& shape,
                const MicroScale&) override {
    const int64_t n = shape.tokens();
    const View<T, 2> dbranch = s_.dbranch.rows(0, n), datt = s_.datt.rows(0, n);
    const View<T, 2> dqkv = s_.dqkv.rows(0, n);
    out_weight_.backward(on, s_.quant,
                         {.dx = datt,
                          .dy = dbranch,
                          .x = att_.rows(0, n),
                          .dy_amax = dbranch_amax(),
                          .x_amax = att_amax()});
    // dqkv's slot: attention_backward accounts for dv, the last op that writes dq and dk for them.
    const View<float, 1> rotated_amax = config_.qk_norm ? View<float, 1>{} : dqkv_amax();
    attention_backward<T>(on, {.dqkv = dqkv,
                               .dv_amax = dqkv_amax(),
                               .scratch = s_.attention_partial,
                               .dout = datt,
                               .out = att_.rows(0, n),
                               .lse = lse(shape),
                               .qkv = qkv_.rows(0, n),
                               .batch = shape.batch,
                               .sequence = shape.sequence,
                               .heads = config_.heads,
                               .kv_heads = config_.resolved_kv_heads(),
                               .head_dim = config_.resolved_head_dim()});
    rope_backward<T>(on, {.dqkv = dqkv,
                          .amax = rotated_amax,
                          .cos = cos_,
                          .sin = sin_,
                          .heads = config_.heads,
                          .kv_heads = config_.resolved_kv_heads(),
                          .head_dim = config_.resolved_head_dim(),
                          .sequence = shape.sequence});
    if (config_.qk_norm) qk_norm_gradient(on, n);
    qkv_weight_.backward(on, s_.quant,
                         {.dx = s_.dnorm.rows(0, n),
                          .dy = dqkv,
                          .x = norm_.y.rows(0, n),
                          .dy_amax = dqkv_amax(),
                          .x_amax = y_amax()});
    norm_.backward(on, s_, in, n);
  }

  int64_t workspace_bytes(Backend backend, int64_t tokens) const override {
    const int64_t q_width = config_.heads * config_.resolved_head_dim();
    const int64_t qkv_width =
        q_width + 2 * config_.resolved_kv_heads() * config_.resolved_head_dim();
    return std::max(linear_workspace_bytes<T>(backend, tokens, qkv_width, config_.hidden),
                    linear_workspace_bytes<T>(backend, tokens, config_.hidden, q_width));
  }
  std::vector<QuantisedProducts*> quantised() const override {
    return present({qkv_weight_.quantised(), out_weight_.quantised()});
  }

 private:
  using Sublayer<T>::norm_;

  View<float, 1> amax_slot(SublayerTensor tensor) const {
    return s_.quant.amax_slot(2 * layer_, tensor);
  }
  View<float, 1> y_amax() const {
    return input_amax_slot(qkv_weight_.quantised(), s_.quant, amax_slot(SublayerTensor::kInput));
  }
  View<float, 1> att_amax() const {
    return input_amax_slot(out_weight_.quantised(), s_.quant, amax_slot(SublayerTensor::kInner));
  }
  View<float, 1> dbranch_amax() const {
    return gradient_amax_slot(out_weight_.quantised(), s_.quant,
                              amax_slot(SublayerTensor::kDbranch));
  }
  View<float, 1> dqkv_amax() const {
    return gradient_amax_slot(qkv_weight_.quantised(), s_.quant,
                              amax_slot(SublayerTensor::kDinner));
  }

  // The stream of the kept rows only. Their resid and attention output overwrite norm_.y and qkv_,
  // which are no longer needed.
  ResidualStream<T> kept_branch(Exec on, View<const int32_t, 1> kept) const {
    const int64_t n = kept.dim[0];
    const View<T, 2> resid = norm_.y.rows(0, n), branch = s_.branch.rows(0, n);
    const View<T, 2> att{qkv_.data, {n, att_.dim[1]}};
    embedding_forward<T>(on, {.y = resid, .weight = norm_.resid, .token = kept});
    embedding_forward<T>(on, {.y = att, .weight = att_, .token = kept});
    out_weight_.forward(on, s_.quant, att, branch, {});
    return {norm_.y, s_.branch, gain_};
  }

  void attend(Exec on, const BatchShape& shape, View<const AttentionSegment, 1> segment,
              View<const T, 2> qkv) const {
    const int64_t n = shape.tokens(), heads = config_.heads;
    if (segment.empty()) {
      return attention_forward<T>(on, {.out = att_.rows(0, n),
                                       .lse = lse(shape),
                                       .amax = att_amax(),
                                       .qkv = qkv,
                                       .batch = shape.batch,
                                       .sequence = shape.sequence,
                                       .heads = heads,
                                       .kv_heads = config_.resolved_kv_heads(),
                                       .head_dim = config_.resolved_head_dim()});
    }
    const int64_t keys = heads * config_.resolved_head_dim();
    View<const T, 2> prefix = qkv;
    if (!shape.cache_row.empty()) {
      const View<T, 2> kept = cache_.layer[static_cast<size_t>(layer_)];
      kv_cache_write<T>(on, {.kept = kept, .x = qkv, .row = shape.cache_row, .column = keys});
      prefix = kept;
    }
    const bool cached = !shape.cache_row.empty();
    varlen_attention<T>(on,
                        {.out = att_.rows(0, n),
                         .qkv = qkv,
                         .prefix = prefix,
                         .segment = segment,
                         .prefix_column = cached ? 0 : keys,
                         .heads = heads,
                         .kv_heads = config_.resolved_kv_heads(),
                         .head_dim = config_.resolved_head_dim(),
                         .behind_prefix = cached ? BehindPrefix::kRowByRow : BehindPrefix::kTiles});
  }
  View<float, 3> lse(const BatchShape& shape) const {
    return {lse_.data, {shape.batch, config_.heads, shape.sequence}};
  }
  void qk_norm(Exec on, int64_t n) const {
    qk_norm_forward<T>(on, {.raw = qk_raw_.rows(0, n),
                            .rstd = qk_rstd_.rows(0, n),
                            .qkv = qkv_.rows(0, n),
                            .q_weight = q_norm_,
                            .k_weight = k_norm_,
                            .heads = config_.heads,
                            .kv_heads = config_.resolved_kv_heads(),
                            .head_dim = config_.resolved_head_dim(),
                            .eps = static_cast<float>(config_.norm_eps)});
  }
  void qk_norm_gradient(Exec on, int64_t n) const {
    qk_norm_backward<T>(on, {.dqkv = s_.dqkv.rows(0, n),
                             .amax = dqkv_amax(),
                             .dq_weight = dq_norm_,
                             .dk_weight = dk_norm_,
                             .partial = s_.qk_norm_partial,
                             .raw = qk_raw_.rows(0, n),
                             .rstd = qk_rstd_.rows(0, n),
                             .q_weight = q_norm_,
                             .k_weight = k_norm_,
                             .heads = config_.heads,
                             .kv_heads = config_.resolved_kv_heads(),
                             .head_dim = config_.resolved_head_dim()});
  }

  const ModelConfig config_;
  const int64_t layer_;
  const std::string name_;
  const Scratch<T>& s_;
  const KvCache<T>& cache_;
  // The decoder's, which are bound after this sublayer is constructed.
  const View<float, 2>&cos_, &sin_;
  const float gain_;

  Projection<T> qkv_weight_, out_weight_;
  View<const float, 1> q_norm_, k_norm_;
  View<float, 1> dq_norm_, dk_norm_;
  View<T, 2> qkv_, att_;  // qkv_ after QK-norm and RoPE
  View<T, 2> qk_raw_;     // with QK-norm
  View<float, 2> qk_rstd_;
  View<float, 1> lse_;
};

template <typename T>
class DenseSublayer final : public Sublayer<T> {
 public:
  DenseSublayer(const BlockParts<T>& parts, int64_t layer)
      : config_(parts.config),
        layer_(layer),
        s_(parts.scratch),
        ffn_("blocks." + std::to_string(layer) + ".ffn",
             parts.site(ProductRole::kDenseFfn, layer)) {}

  SublayerKind kind() const override { return SublayerKind::kDense; }
  void plan(MemoryPlan& plan, int64_t tokens) override {
    norm_.plan(plan, ffn_.name + ".norm", config_, tokens);
    ffn_.plan(plan, config_.ffn, tokens);
  }
  void bind(const ParameterStore<T>& store) override {
    norm_.bind(store, ffn_.name + ".norm");
    ffn_.bind(store);
  }
  ResidualStream<T> forward(Exec on, const ResidualStream<T>& in, const BatchShape& shape,
                            Pass) override {
    const int64_t n = shape.tokens();
    const FfnAmax amax = asked();
    norm_.forward(on, in, n, amax.x);
    ffn_.forward(on, s_.quant, norm_.y.rows(0, n), s_.branch.rows(0, n), amax);
    return {norm_.resid, s_.branch, 1.0f, amax.dy};
  }
  void backward(Exec on, const ResidualStream<T>& in, const BatchShape& shape,
                const MicroScale&) override {
    const int64_t n = shape.tokens();
    ffn_.backward(on, s_.quant,
                  {.dx = s_.dnorm.rows(0, n),
                   .dh = s_.dh,
                   .dgate_up = s_.dgate_up,
                   .x = norm_.y.rows(0, n),
                   .dy = s_.dbranch.rows(0, n),
                   .amax = asked()});
    norm_.backward(on, s_, in, n);
  }
  int64_t workspace_bytes(Backend backend, int64_t tokens) const override {
    return std::max(linear_workspace_bytes<T>(backend, tokens, 2 * config_.ffn, config_.hidden),
                    linear_workspace_bytes<T>(backend, tokens, config_.hidden, config_.ffn));
  }
  std::vector<QuantisedProducts*> quantised() const override {
    return present({ffn_.gate_up_weight.quantised(), ffn_.down_weight.quantised()});
  }

 private:
  using Sublayer<T>::norm_;
  FfnAmax asked() const {
    const auto amax_slot = [&](SublayerTensor t) { return s_.quant.amax_slot(2 * layer_ + 1, t); };
    return ffn_.asked(s_.quant, {.x = amax_slot(SublayerTensor::kInput),
                                 .h = amax_slot(SublayerTensor::kInner),
                                 .dy = amax_slot(SublayerTensor::kDbranch),
                                 .dgate_up = amax_slot(SublayerTensor::kDinner)});
  }

  const ModelConfig config_;
  const int64_t layer_;
  const Scratch<T>& s_;
  SwigluFfn<T> ffn_;
};

}  // namespace

template <typename T>
std::unique_ptr<Sublayer<T>> make_attention_sublayer(const BlockParts<T>& parts, int64_t layer,
                                                     const View<float, 2>& cos,
                                                     const View<float, 2>& sin) {
  return std::make_unique<AttentionSublayer<T>>(parts, layer, cos, sin);
}

template <typename T>
std::unique_ptr<Sublayer<T>> make_dense_sublayer(const BlockParts<T>& parts, int64_t layer) {
  return std::make_unique<DenseSublayer<T>>(parts, layer);
}

template struct Scratch<float>;
template struct Scratch<bf16>;
template struct ResidualNorm<float>;
template struct ResidualNorm<bf16>;
template std::unique_ptr<Sublayer<float>> make_attention_sublayer(const BlockParts<float>&, int64_t,
                                                                  const View<float, 2>&,
                                                                  const View<float, 2>&);
template std::unique_ptr<Sublayer<bf16>> make_attention_sublayer(const BlockParts<bf16>&, int64_t,
                                                                 const View<float, 2>&,
                                                                 const View<float, 2>&);
template std::unique_ptr<Sublayer<float>> make_dense_sublayer(const BlockParts<float>&, int64_t);
template std::unique_ptr<Sublayer<bf16>> make_dense_sublayer(const BlockParts<bf16>&, int64_t);

}  // namespace assay
