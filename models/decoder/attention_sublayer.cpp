// Norm, query, key and value products, rotation, attention, output product. Backward is the same
// list in reverse.
#include <algorithm>
#include <cmath>

#include "base/bf16.h"
#include "models/decoder/sublayer.h"
#include "models/linear/projection.h"
#include "ops/attention.h"
#include "ops/embedding.h"
#include "ops/kv_cache_write.h"
#include "ops/linear.h"
#include "ops/qk_norm.h"
#include "ops/rope.h"
#include "ops/varlen_attention.h"

namespace assay {

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
        gain_(config_.attention_gain == AttentionGain::kDepth
                  ? static_cast<float>(1.0 / std::sqrt(2.0 * double(config_.layers)))
                  : 1.0f),
        qkv_weight_(parts.site(name_ + ".qkv", ProductRole::kAttention, layer)),
        out_weight_(parts.site(name_ + ".out", ProductRole::kAttention, layer)) {}

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

  ResidualStream<T> forward(Exec on, const PrecisionState& precision, const ResidualStream<T>& in,
                            View<T, 2> after, const BatchShape& shape, Pass) override {
    const int64_t n = shape.tokens();
    const QuantPass q{s_.quant, precision};
    norm_.forward(on, in, n, y_amax(q));
    const View<T, 2> qkv = qkv_.rows(0, n);
    qkv_weight_.forward(on, q, norm_.y.rows(0, n), qkv, y_amax(q));
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
    attend(on, q, all ? shape : shape.last_attention(), qkv);
    if (!all) return kept_stream(on, q, shape.kept, after);
    return stream(on, q,
                  {.att = att_.rows(0, n),
                   .amax = shape.segment.empty() ? att_amax(q) : View<float, 1>{},
                   .resid = norm_.resid,
                   .after = after});
  }

  void backward(Exec on, const PrecisionState& precision, const ResidualStream<T>& in,
                const BatchShape& shape, const MicroScale&) override {
    const int64_t n = shape.tokens();
    const QuantPass q{s_.quant, precision};
    const View<T, 2> datt = s_.datt.rows(0, n);
    const View<T, 2> dqkv = s_.dqkv.rows(0, n);
    const bool apart = branch_gradient(on) == BranchGradient::kDbranch;
    out_weight_.backward(on, q,
                         {.dx = datt,
                          .dy = apart ? s_.dbranch.rows(0, n) : s_.dresid.rows(0, n),
                          .x = att_.rows(0, n),
                          .dy_amax = dbranch_amax(q),
                          .x_amax = att_amax(q),
                          .dy_gain = apart ? 1.0f : gain_});
    // dqkv's slot has dv, and dq and dk from the last op that writes them.
    const View<float, 1> dqk_amax = config_.qk_norm ? View<float, 1>{} : dqkv_amax(q);
    attention_backward<T>(on, {.dqkv = dqkv,
                               .dqk_amax = dqk_amax,
                               .dv_amax = dqkv_amax(q),
                               .scratch = s_.attention_partial,
                               .dout = datt,
                               .out = att_.rows(0, n),
                               .lse = lse(shape),
                               .qkv = qkv_.rows(0, n),
                               .cos = cos_,
                               .sin = sin_,
                               .batch = shape.batch,
                               .sequence = shape.sequence,
                               .heads = config_.heads,
                               .kv_heads = config_.resolved_kv_heads(),
                               .head_dim = config_.resolved_head_dim()});
    if (config_.qk_norm) qk_norm_gradient(on, q, n);
    qkv_weight_.backward(on, q,
                         {.dx = s_.dnorm.rows(0, n),
                          .dy = dqkv,
                          .x = norm_.y.rows(0, n),
                          .dy_amax = dqkv_amax(q),
                          .x_amax = y_amax(q)});
    norm_.backward(on, s_, in, n);
  }

  int64_t workspace_bytes(Backend backend, int64_t tokens) const override {
    const int64_t q_width = config_.heads * config_.resolved_head_dim();
    return std::max(linear_workspace_bytes<T>(backend, tokens, config_.hidden),
                    linear_workspace_bytes<T>(backend, tokens, q_width));
  }
  void name_stored_gradients(std::vector<std::string>& names) const override {
    qkv_weight_.name_stored(names);
    out_weight_.name_stored(names);
  }
  std::vector<QuantisedProducts*> quantised() const override {
    return present({qkv_weight_.quantised(), out_weight_.quantised()});
  }

 private:
  using Sublayer<T>::norm_;

  BranchGradient branch_gradient(Exec on) const {
    return gain_ == 1.0f || out_weight_.takes_gain(on) ? BranchGradient::kDresid
                                                       : BranchGradient::kDbranch;
  }
  View<float, 1> amax_slot(SublayerTensor tensor) const {
    return s_.quant.amax_slot(2 * layer_, tensor);
  }
  View<float, 1> y_amax(const QuantPass& q) const {
    return input_amax_slot(qkv_weight_.quantised(), q, amax_slot(SublayerTensor::kInput));
  }
  View<float, 1> att_amax(const QuantPass& q) const {
    return input_amax_slot(out_weight_.quantised(), q, amax_slot(SublayerTensor::kInner));
  }
  View<float, 1> dbranch_amax(const QuantPass& q) const {
    return gradient_amax_slot(out_weight_.quantised(), q, amax_slot(SublayerTensor::kDbranch));
  }
  View<float, 1> dqkv_amax(const QuantPass& q) const {
    return gradient_amax_slot(qkv_weight_.quantised(), q, amax_slot(SublayerTensor::kDinner));
  }

  // The stream after the output product.
  struct Output {
    View<const T, 2> att;
    View<float, 1> amax;      // of att; empty if unknown
    View<T, 2> resid, after;  // more rows than att
  };
  ResidualStream<T> stream(Exec on, const QuantPass& q, const Output& a) const {
    const int64_t n = a.att.dim[0];
    ResidualStream<T> out{.resid = a.resid,
                          .branch = s_.branch,
                          .gain = gain_,
                          .gradient = branch_gradient(on),
                          .gradient_amax = dbranch_amax(q)};
    if (last_op_adds(on) && out_weight_.quantised() == nullptr) {
      out_weight_.forward_onto(on, a.att, a.resid.rows(0, n), gain_, a.after.rows(0, n));
      out.resid = a.after;
      out.branch = {};
    } else {
      out_weight_.forward(on, q, a.att, s_.branch.rows(0, n), a.amax);
    }
    return out;
  }

  // The same of the kept rows only. Their resid and attention output overwrite norm_.y and qkv_,
  // which are no longer needed.
  ResidualStream<T> kept_stream(Exec on, const QuantPass& q, View<const int32_t, 1> kept,
                                View<T, 2> after) const {
    const int64_t n = kept.dim[0];
    const View<T, 2> resid = norm_.y.rows(0, n);
    const View<T, 2> att{qkv_.data, {n, att_.dim[1]}};
    embedding_forward<T>(on, {.y = resid, .weight = norm_.resid, .token = kept});
    embedding_forward<T>(on, {.y = att, .weight = att_, .token = kept});
    return stream(on, q, {.att = att, .amax = {}, .resid = norm_.y, .after = after});
  }

  void attend(Exec on, const QuantPass& q, const BatchShape& shape, View<const T, 2> qkv) const {
    const int64_t n = shape.tokens(), heads = config_.heads;
    if (shape.segment.empty()) {
      return attention_forward<T>(on, {.out = att_.rows(0, n),
                                       .lse = lse(shape),
                                       .amax = att_amax(q),
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
                         .segment = shape.segment,
                         .work = shape.work,
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
  void qk_norm_gradient(Exec on, const QuantPass& q, int64_t n) const {
    qk_norm_backward<T>(on, {.dqkv = s_.dqkv.rows(0, n),
                             .amax = dqkv_amax(q),
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

}  // namespace

template <typename T>
std::unique_ptr<Sublayer<T>> make_attention_sublayer(const BlockParts<T>& parts, int64_t layer,
                                                     const View<float, 2>& cos,
                                                     const View<float, 2>& sin) {
  return std::make_unique<AttentionSublayer<T>>(parts, layer, cos, sin);
}

template std::unique_ptr<Sublayer<float>> make_attention_sublayer(const BlockParts<float>&, int64_t,
                                                                  const View<float, 2>&,
                                                                  const View<float, 2>&);
template std::unique_ptr<Sublayer<bf16>> make_attention_sublayer(const BlockParts<bf16>&, int64_t,
                                                                 const View<float, 2>&,
                                                                 const View<float, 2>&);

}  // namespace assay
