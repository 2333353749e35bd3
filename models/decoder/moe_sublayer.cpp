#include "models/decoder/moe_sublayer.h"

#include <algorithm>

#include "base/bf16.h"
#include "comm/agree.h"
#include "cuda/transfer.h"
#include "ops/carry_sum.h"
#include "ops/combine.h"
#include "ops/dispatch.h"
#include "ops/grouped_linear.h"
#include "ops/grouped_swiglu.h"
#include "ops/linear.h"
#include "ops/sparse_linear.h"
#include "ops/zero.h"

namespace assay {

namespace {

constexpr int64_t kMarginTokens = 256;  // rows of the last micro-batch whose margin is averaged

RouterSettings router_settings(const RouterConfig& c) {
  RouterSettings s;
  s.score = c.score;
  s.normalize = c.normalize_gates ? NormalizeGates::kYes : NormalizeGates::kNo;
  s.route_scale = static_cast<float>(c.route_scale);
  s.gate_scale = static_cast<float>(c.gate_scale);
  s.aux = c.aux_alpha > 0 ? c.aux : RouterAux::kNone;
  s.scope = c.aux_scope;
  return s;
}

}  // namespace

template <typename T>
MoeSublayer<T>::MoeSublayer(const BlockParts<T>& parts, int64_t layer,
                            const ExpertSharing<T>& sharing)
    : config_(parts.config),
      moe_(*parts.config.moe),
      layer_(layer),
      trains_(parts.trains),
      sequences_(parts.sequences),
      name_("blocks." + std::to_string(layer) + ".moe"),
      s_(parts.scratch),
      settings_(router_settings(moe_.router)),
      experts_(parts.site(name_, ProductRole::kExperts, layer)),
      sharing_(sharing),
      layout_(sharing.layout) {
  if (moe_.shared > 0) {
    shared_.emplace(parts.site(name_ + ".shared", ProductRole::kSharedExperts, layer));
  }
}

template <typename T>
void MoeSublayer<T>::plan(MemoryPlan& plan, int64_t tokens) {
  const int64_t experts = moe_.experts, assignments = tokens * moe_.top_k;
  const auto add = [&](const char* what, auto& view, const auto&... dims) {
    plan.add(Section::kActivations, name_ + "." + what, view, {dims...});
  };
  norm_.plan(plan, "blocks." + std::to_string(layer_) + ".ffn.norm", config_, tokens);
  add("logits", logits_, tokens, experts);
  add("expert", expert_, tokens, moe_.top_k);
  add("slot", slot_, tokens, moe_.top_k);
  add("gate", gate_, tokens, moe_.top_k);
  add("logsumexp", logsumexp_, tokens);
  if (settings_.score == RouterScore::kSigmoid && settings_.aux == RouterAux::kSwitch) {
    add("score_sum", score_sum_, tokens);
  }
  const bool has_aux = trains_ && settings_.aux != RouterAux::kNone;  // evaluation has none
  const int64_t groups = !has_aux ? 0 : settings_.scope == AuxScope::kSequence ? sequences_ : 1;
  if (groups > 0) add("aux_slope", aux_slope_, groups, experts);
  add("offsets", offsets_, experts + 1);
  add("token", token_, assignments);
  const int64_t rows = sharing_.on() ? sharing_.rows : assignments;
  add("gate_up", gate_up_, rows, 2 * moe_.expert_ffn);
  add("h", h_, rows, moe_.expert_ffn);
  if (sharing_.on()) {
    add("received", received_, rows, config_.hidden);
    exchange_.emplace(layout_, sharing_.groups, experts, rows);
    exchange_->plan(plan, name_ + ".exchange", assignments, sharing_.backend);
  }
  add("expert_out", expert_out_, assignments, config_.hidden);
  if (shared_) shared_->plan(plan, moe_.shared * moe_.expert_ffn, tokens);

  add("counts", counts_, experts);
  if (layout_.parts > 1) add("step_counts", step_counts_, experts);
  add("measures", measures_, int64_t{kRouterMeasures});
  add("margin", margin_, kMarginTokens);
  add("lead", lead_, kMarginTokens);
  if (moe_.router.bias_rate.automatic) add("lead_sum", lead_sum_, int64_t{kLeadSums});
  const auto add_read = [&](const char* what, auto& view, const auto&... dims) {
    plan.add(Section::kHostVisible, name_ + "." + what, view, {dims...});
  };
  add_read("counts", read_counts_, experts);
  add_read("bias", read_bias_, experts);
  add_read("measures", read_measures_, layout_.parts, int64_t{kRouterMeasures});
  add_read("margin", read_margin_, kMarginTokens);
  add_read("lead", read_lead_, kMarginTokens);
}

template <typename T>
void MoeSublayer<T>::bind(const ParameterStore<T>& store) {
  norm_.bind(store, "blocks." + std::to_string(layer_) + ".ffn.norm");
  router_weight_ = store.matrix(name_ + ".router");
  drouter_weight_ = store.matrix_gradient(name_ + ".router");
  experts_.bind(store);
  bias_ = store.vector(name_ + ".bias");
  if (shared_) shared_->bind(store);
}

template <typename T>
ResidualStream<T> MoeSublayer<T>::forward(Exec on, const PrecisionState& precision,
                                          const ResidualStream<T>& in, View<T, 2> after,
                                          const BatchShape& shape, Pass pass) {
  const int64_t n = shape.tokens(), assignments = n * moe_.top_k;
  const View<const T, 2> x = norm_.y.rows(0, n);
  const QuantPass q{s_.quant, precision};
  const AmaxSlots amax = amax_slots(q);
  norm_.forward(on, in, n, amax.x);
  linear_forward<T, float>(on, {.y = logits_.rows(0, n), .x = x, .weight = router_weight_});
  router_forward(on, router(n, shape.sequence, pass));
  const bool probed = probe_ != nullptr && pass == Pass::kEvaluate;
  if (probed) show_choices(on, n);
  dispatch(on, {.offsets = offsets_,
                .token = token_.rows(0, assignments),
                .slot = slot_.rows(0, n),
                .partial = s_.dispatch_partial,
                .expert = expert_.rows(0, n)});
  forward_experts(on, q, x, amax.experts);
  if (probed && probe_->wants_outputs(layer_)) show_outputs(on, n);
  if (exchange_ && pass == Pass::kTrain) {
    most_rounds_ = std::max(most_rounds_, exchange_->rounds());
  }
  View<T, 2> shared_out;
  if (shared_) {
    shared_out = s_.shared_out.rows(0, n);
    shared_->forward(on, q, x, shared_out, amax.shared);
    if (probed && !probe_->keeps_shared(layer_)) zero(on, shared_out);
  }
  CombineForward<T> combine{.y = s_.branch.rows(0, n),
                            .expert_out = expert_out_.rows(0, assignments),
                            .slot = slot_.rows(0, n),
                            .gate = gate_.rows(0, n),
                            .add = shared_out};
  if (last_op_adds(on)) {
    combine.y = after.rows(0, n);
    combine.resid = norm_.resid.rows(0, n);
    combine_forward(on, combine);
    return {.resid = after, .gradient_amax = amax.shared.dy};
  }
  combine_forward(on, combine);
  return {.resid = norm_.resid, .branch = s_.branch, .gradient_amax = amax.shared.dy};
}

template <typename T>
void MoeSublayer<T>::forward_experts(Exec on, const QuantPass& q, View<const T, 2> x,
                                     const FfnAmax& amax) {
  if (sharing_.on()) return forward_shared(on, q, x);
  const int64_t assignments = x.dim[0] * moe_.top_k;
  experts_.forward(on, q, {.gather = token_.rows(0, assignments), .offsets = offsets_},
                   {.y = expert_out_.rows(0, assignments),
                    .gate_up = gate_up_.rows(0, assignments),
                    .h = h_.rows(0, assignments),
                    .x = x,
                    .amax = amax});
}

template <typename T>
void MoeSublayer<T>::backward(Exec on, const PrecisionState& precision, const ResidualStream<T>& in,
                              const BatchShape& shape, const MicroScale& scale) {
  const int64_t n = shape.tokens(), assignments = n * moe_.top_k;
  const View<const T, 2> x = norm_.y.rows(0, n);
  const View<T, 2> dexpert_in = s_.dexpert_in.rows(0, assignments);
  const View<T, 2> dresid = s_.dresid.rows(0, n), dnorm = s_.dnorm.rows(0, n);

  const QuantPass q{s_.quant, precision};
  const AmaxSlots amax = amax_slots(q);
  combine_backward<T>(on, {.dexpert_out = s_.dexpert_out.rows(0, assignments),
                           .dgate = s_.dgate.rows(0, n),
                           .amax = amax.experts.dy,
                           .dy = dresid,
                           .expert_out = expert_out_.rows(0, assignments),
                           .slot = slot_.rows(0, n),
                           .gate = gate_.rows(0, n)});
  backward_experts(on, q, x, amax.experts);
  reduce_by_token<T>(on, {.dx = dnorm, .dexpert_in = dexpert_in, .slot = slot_.rows(0, n)});
  if (shared_) {
    shared_->backward(on, q,
                      {.dx = dnorm,
                       .dh = s_.dh,
                       .dgate_up = s_.dgate_up,
                       .x = x,
                       .dy = dresid,
                       .amax = amax.shared,
                       .add = dnorm});
  }

  backward_router(on, x, shape, scale);
  norm_.backward(on, s_, in, n);
}

template <typename T>
void MoeSublayer<T>::backward_experts(Exec on, const QuantPass& q, View<const T, 2> x,
                                      const FfnAmax& amax) {
  if (sharing_.on()) return backward_shared(on, q, x);
  const int64_t assignments = x.dim[0] * moe_.top_k;
  experts_.backward(on, q, {.gather = token_.rows(0, assignments), .offsets = offsets_},
                    {.dx = s_.dexpert_in.rows(0, assignments),
                     .dgate_up = {s_.dgate_up.data, {assignments, 2 * moe_.expert_ffn}},
                     .dh = {s_.dh.data, {assignments, moe_.expert_ffn}},
                     .dy = s_.dexpert_out.rows(0, assignments),
                     .x = x,
                     .gate_up = gate_up_.rows(0, assignments),
                     .h = h_.rows(0, assignments),
                     .amax = amax});
}

template <typename T>
void MoeSublayer<T>::backward_router(Exec on, View<const T, 2> x, const BatchShape& shape,
                                     const MicroScale& scale) {
  const int64_t n = shape.tokens();
  const View<T, 2> dlogits = s_.dlogits.rows(0, n), dnorm = s_.dnorm.rows(0, n);
  const View<float, 2> dchosen = s_.dchosen.rows(0, n);
  const RouterForward forward = router(n, shape.sequence, Pass::kTrain);
  const auto moe_layers = static_cast<float>(config_.layers - moe_.first_dense_layers);
  const float share = scale.micro_share / moe_layers;
  RouterBackward<T> backward{.dgate = s_.dgate.rows(0, n),
                             .expert = forward.expert,
                             .logits = forward.logits,
                             .logsumexp = forward.logsumexp,
                             .score_sum = forward.score_sum,
                             .aux_slope = forward.aux_slope,
                             .aux_weight = static_cast<float>(moe_.router.aux_alpha) * share,
                             .z_weight = static_cast<float>(moe_.router.z_alpha) * share,
                             .settings = forward.settings};
  if (sparse_linear_pays(on, moe_.experts, moe_.top_k) && router_backward_is_sparse(backward)) {
    backward.dchosen = dchosen;
    router_backward(on, backward);
    sparse_linear_backward<T>(on, {.dx = dnorm,
                                   .dweight = drouter_weight_,
                                   .dz = dchosen,
                                   .expert = forward.expert,
                                   .offsets = offsets_,
                                   .token = token_.rows(0, n * moe_.top_k),
                                   .x = x,
                                   .weight = router_weight_.plain,
                                   .add = dnorm});
    return;
  }
  backward.dlogits = dlogits;
  router_backward(on, backward);
  linear_wgrad<T>(on, {.dweight = drouter_weight_, .dy = dlogits, .x = x});
  linear_dgrad<T>(on, {.dx = dnorm, .dy = dlogits, .weight = router_weight_, .add = dnorm});
}

template <typename T>
typename MoeSublayer<T>::AmaxSlots MoeSublayer<T>::amax_slots(const QuantPass& q) const {
  const auto amax_slot = [&](SublayerTensor t) { return s_.quant.amax_slot(2 * layer_ + 1, t); };
  AmaxSlots amax;
  amax.experts = ffn_amax_slots(experts_.gate_up_quantised(), experts_.down_quantised(), q,
                                {.x = amax_slot(SublayerTensor::kInput),
                                 .h = amax_slot(SublayerTensor::kInner),
                                 .dy = amax_slot(SublayerTensor::kDexpertOut),
                                 .dgate_up = amax_slot(SublayerTensor::kDinner)});
  if (shared_) {
    amax.shared = shared_->amax_slots(q, {.x = amax_slot(SublayerTensor::kInput),
                                          .h = amax_slot(SublayerTensor::kSharedInner),
                                          .dy = amax_slot(SublayerTensor::kDbranch),
                                          .dgate_up = amax_slot(SublayerTensor::kSharedDinner)});
  }
  amax.x = amax.experts.x.empty() ? amax.shared.x : amax.experts.x;
  return amax;
}

template <typename T>
RouterForward MoeSublayer<T>::router(int64_t tokens, int64_t sequence, Pass pass) const {
  RouterSettings settings = settings_;
  if (settings.scope == AuxScope::kSequence) settings.sequence = sequence;
  const bool train = pass == Pass::kTrain;
  if (!train) settings.aux = RouterAux::kNone;
  const bool aux = settings.aux != RouterAux::kNone;
  const int64_t pieces = router_pieces(tokens, settings);
  return {.expert = expert_.rows(0, tokens),
          .gate = gate_.rows(0, tokens),
          .logsumexp = logsumexp_.rows(0, tokens),
          .score_sum = score_sum_.empty() ? View<float, 1>{} : score_sum_.rows(0, tokens),
          .aux_slope = aux ? aux_slope_.rows(0, router_groups(tokens, settings)) : View<float, 2>{},
          .measures = train ? measures_ : View<double, 1>{},
          .counts = train ? counts_ : View<int64_t, 1>{},
          .count_partial = s_.count_partial.rows(0, pieces),
          .share_partial = aux ? s_.share_partial.rows(0, pieces) : View<float, 2>{},
          .measure_partial = s_.measure_partial.rows(0, pieces),
          .logits = logits_.rows(0, tokens),
          .bias = has_bias() ? View<const float, 1>(bias_) : View<const float, 1>{},
          .settings = settings};
}

template <typename T>
int64_t MoeSublayer<T>::workspace_bytes(Backend backend, int64_t tokens) const {
  const int64_t assignments = tokens * moe_.top_k, width = config_.hidden;
  const int64_t rows = std::max(assignments, sharing_.rows);
  int64_t bytes = std::max({
      linear_workspace_bytes<T>(backend, tokens, width),
      grouped_workspace_bytes<T>(backend, rows, moe_.experts, 2 * moe_.expert_ffn, width),
      grouped_workspace_bytes<T>(backend, rows, moe_.experts, width, moe_.expert_ffn),
  });
  if (shared_) {
    const int64_t inner = moe_.shared * moe_.expert_ffn;
    bytes = std::max({bytes, linear_workspace_bytes<T>(backend, tokens, width),
                      linear_workspace_bytes<T>(backend, tokens, inner),
                      backend == Backend::kGpu ? grouped_swiglu_dgrad_workspace_bytes(tokens) : 0});
  }
  return bytes;
}

// The sums of several sources are added to the gradients of shared-out experts.
template <typename T>
void MoeSublayer<T>::name_stored_gradients(std::vector<std::string>& names) const {
  if (!sharing_.on()) experts_.name_stored(names);
  if (shared_) shared_->name_stored(names);
}

template <typename T>
std::vector<QuantisedProducts*> MoeSublayer<T>::quantised() const {
  return present({experts_.gate_up_quantised(), experts_.down_quantised(),
                  shared_ ? shared_->gate_up_weight.quantised() : nullptr,
                  shared_ ? shared_->down_weight.quantised() : nullptr});
}

template <typename T>
void MoeSublayer<T>::begin_step(Exec on) {
  zero(on, counts_);
  if (layout_.parts > 1) zero(on, step_counts_);
  zero(on, measures_);
  part_ = layout_.first_part();
  micro_batches_ = 0;
  most_rounds_ = 0;
  measured_ = false;
}

template <typename T>
void MoeSublayer<T>::next_part(Exec on) {
  gather_counts(on);
  copy(on, View<double, 1>{read_measures_.row(part_), {kRouterMeasures}}, measures_);
  zero(on, measures_);
  part_ += 1;
}

template <typename T>
View<const int64_t, 1> MoeSublayer<T>::gather_counts(Exec on) {
  if (layout_.parts == 1) return counts_;
  CarrySum<int64_t> sum{.to = step_counts_, .own = counts_, .carried = 1};
  sum.earlier[0] = step_counts_;
  carry_sum(on, sum);
  zero(on, counts_);
  return step_counts_;
}

template <typename T>
void MoeSublayer<T>::count_micro_batch(int64_t tokens) {
  micro_batches_ += 1;
  last_tokens_ = tokens;
}

template <typename T>
void MoeSublayer<T>::update_bias(Exec on, float lr_fraction) {
  measure_margin(on);
  if (!has_bias()) return;
  const RouterConfig& router = moe_.router;
  const double rate =
      router.bias_rate.automatic ? 1 / (2 * router.resolved_bias_steps()) : router.bias_rate.number;
  const float follow = router.bias_follows_lr ? lr_fraction : 1.0f;
  router_bias_update(on, {.bias = bias_,
                          .counts = gather_counts(on),
                          .lead = lead_sum_,
                          .rate = static_cast<float>(rate) * follow,
                          .rule = router.resolved_bias_rule()});
}

template <typename T>
void MoeSublayer<T>::measure_margin(Exec on) {
  if (measured_) return;
  measured_ = true;
  const int64_t sampled = std::min(kMarginTokens, last_tokens_);
  router_margin(on, {.margin = margin_.rows(0, sampled),
                     .lead = lead_.rows(0, sampled),
                     .expert = expert_.rows(0, sampled),
                     .logits = logits_.rows(0, sampled),
                     .bias = has_bias() ? View<const float, 1>(bias_) : View<const float, 1>{},
                     .settings = settings_});
  margins_ = sampled;
  if (!lead_sum_.empty()) router_lead_sum(on, {.sum = lead_sum_, .lead = lead_.rows(0, sampled)});
}

template <typename T>
void MoeSublayer<T>::read_back(Exec on) {
  copy(on, read_counts_, gather_counts(on));
  if (has_bias()) copy(on, read_bias_, bias_);
  copy(on, View<double, 1>{read_measures_.row(part_), {kRouterMeasures}}, measures_);
  read_parts_ = part_ + 1;
  read_ranks_ = 1;
  copy(on, read_margin_, margin_.rows(0, margins_));
  copy(on, read_lead_, lead_.rows(0, margins_));
  margins_of_last_rank_.reset();
}

template <typename T>
void MoeSublayer<T>::sum_counts(Exec on, Group& ranks) {
  const View<const int64_t, 1> counts = gather_counts(on);
  CHECK(counts.data == step_counts_.data, "%s: one part on %d ranks", name_.c_str(), ranks.size());
  ranks.sum_integers(on, step_counts_);
  if (!moe_.router.bias_rate.automatic) return;
  // The step's last micro-batch is the last rank's.
  measure_margin(on);
  if (ranks.rank() != ranks.size() - 1) zero(on, lead_sum_);
  ranks.sum_integers(on, lead_sum_);
}

template <typename T>
void MoeSublayer<T>::gather_results(Group& ranks) {
  gather_rows(ranks, layout_, read_measures_);
  read_parts_ = layout_.parts;
  read_ranks_ = ranks.size();
  if (layout_.expert_ranks > 1) {
    const std::vector<int64_t> rounds = gather(ranks, most_rounds_);
    most_rounds_ = *std::max_element(rounds.begin(), rounds.end());
  }
  std::vector<Margins> all(size_t(ranks.size()));
  const Margins mine = margins();
  ranks.all_gather({}, all.data(), &mine, sizeof mine);
  margins_of_last_rank_ = all.back();
}

template <typename T>
typename MoeSublayer<T>::Margins MoeSublayer<T>::margins() const {
  Margins mean;
  for (int64_t i = 0; i < margins_; ++i) {
    mean.margin += double(read_margin_[i]) / double(margins_);
    mean.lead += double(read_lead_[i]) / double(margins_);
  }
  return mean;
}

template <typename T>
RouterLayerState MoeSublayer<T>::state() const {
  RouterLayerState state;
  state.layer = layer_;
  state.top_k = moe_.top_k;
  state.counts = read_counts_;
  if (has_bias()) state.bias = read_bias_;
  if (micro_batches_ == 0) return state;
  const auto mean = [&](int measure) {
    double sum = 0;
    for (int64_t part = 0; part < read_parts_; ++part) sum += read_measures_.at(part, measure);
    return sum / double(micro_batches_ * read_ranks_);
  };
  state.exchange_rounds = most_rounds_;
  state.aux = mean(kAuxValue);
  state.z = mean(kZValue);
  state.gate_entropy_nats = mean(kGateEntropy);
  const Margins measured = margins_of_last_rank_.value_or(margins());
  state.margin = measured.margin;
  state.lead = measured.lead;
  return state;
}

template class MoeSublayer<float>;
template class MoeSublayer<bf16>;

}  // namespace assay
