#include "lab/cluster/step_ops.h"

#include <algorithm>
#include <bit>

#include "base/bf16.h"
#include "base/check.h"
#include "ops/adamw.h"
#include "ops/attention.h"
#include "ops/carry_sum.h"
#include "ops/combine.h"
#include "ops/dispatch.h"
#include "ops/embedding.h"
#include "ops/global_norm.h"
#include "ops/grouped_linear.h"
#include "ops/grouped_swiglu.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/sparse_linear.h"
#include "ops/swiglu.h"
#include "ops/zero.h"

namespace assay {

namespace {

// A view with a shape, whose memory is never read: cost functions look at shapes, and at whether an
// optional view is there.
template <typename T, typename... Dims>
View<T, int(sizeof...(Dims))> shaped(Dims... dims) {
  alignas(64) static std::byte nothing[64];
  return {reinterpret_cast<T*>(nothing), {int64_t(dims)...}};
}
template <typename T>
WeightMatrix<T> weight(int64_t out, int64_t in) {
  return {.plain = shaped<const T>(out, in), .packed = {}};
}

OpCall carry_sum_of(int64_t values, int carried) {
  CarrySum<float> a{};
  a.to = shaped<float>(values);
  a.carried = carried;
  return {"carry_sum", 1, carry_sum_cost(a)};
}

class Lists {
 public:
  Lists(const Config& config, const ExpertShare& share)
      : model_(config.model),
        batch_(config.run.micro_batch),
        sequence_(config.run.sequence),
        n_(batch_ * sequence_),
        c_(model_.hidden),
        expert_ranks_(share.expert_ranks) {}

  std::vector<OpCall> embedding() const {
    EmbeddingForward<bf16> a{};
    a.y = wide();
    a.weight = wide();  // a row for each token, as counted then
    a.token = shaped<const int32_t>(n_);
    return {{"embedding_forward", 1, embedding_forward_cost(a)}};
  }
  std::vector<OpCall> embedding_backward() const {
    EmbeddingBackward<bf16> a{};
    a.dweight = shaped<float>(n_, c_);
    a.dy = wide();
    a.token = shaped<const int32_t>(n_);
    return {{"embedding_backward", 1, embedding_backward_cost(a)}};
  }
  std::vector<OpCall> loss() const {
    HeadLoss<bf16> a{};
    a.dx = wide();
    a.x = wide();
    a.weight = weight<bf16>(model_.vocab_size, c_);
    a.dweight = shaped<float>(model_.vocab_size, c_);
    return {{"head_loss", 1, head_loss_cost(a)}};
  }
  OpCall clearing_residual() const {
    return {"zero", 1, zero_cost({.x = shaped<std::byte>(int64_t(wide().bytes()))})};
  }

  // residual: whether a branch is added, as everywhere but in front of the first block.
  OpCall norm(bool residual) const {
    RmsNormForward<bf16> a{};
    a.y = a.resid = wide();
    a.x = wide();
    if (residual) a.branch = wide();
    a.rstd = shaped<float>(n_);
    a.weight = shaped<const float>(c_);
    return {"rmsnorm_forward", 1, rmsnorm_forward_cost(a)};
  }
  OpCall norm_backward(bool residual) const {
    RmsNormBackward<bf16> a{};
    if (residual) a.dbranch = wide();
    a.dresid = wide();
    a.dy = a.resid = wide();
    return {"rmsnorm_backward", 1, rmsnorm_backward_cost(a)};
  }

  std::vector<OpCall> attention() const {
    AttentionForward<bf16> a{};
    a.out = shaped<bf16>(n_, q_width());
    a.lse = shaped<float>(batch_, model_.heads, sequence_);
    a.qkv = shaped<const bf16>(n_, qkv_width());
    a.batch = batch_;
    a.sequence = sequence_;
    a.heads = model_.heads;
    a.head_dim = head_dim();
    RopeForward<bf16> rope{};
    rope.qkv = shaped<bf16>(n_, qkv_width());
    rope.heads = model_.heads;
    rope.kv_heads = model_.resolved_kv_heads();
    rope.head_dim = head_dim();
    return {linear(qkv_width(), c_),
            {"rope_forward", 1, rope_forward_cost(rope)},
            {"attention_forward", 1, attention_forward_cost(a)},
            linear(c_, q_width())};
  }
  std::vector<OpCall> attention_backward() const {
    AttentionBackward<bf16> a{};
    a.dqkv = shaped<bf16>(n_, qkv_width());
    a.qkv = shaped<const bf16>(n_, qkv_width());
    a.dout = a.out = shaped<const bf16>(n_, q_width());
    a.lse = shaped<const float>(batch_, model_.heads, sequence_);
    a.batch = batch_;
    a.sequence = sequence_;
    a.heads = model_.heads;
    a.head_dim = head_dim();
    RopeBackward<bf16> rope{};
    rope.dqkv = shaped<bf16>(n_, qkv_width());
    rope.heads = model_.heads;
    rope.kv_heads = model_.resolved_kv_heads();
    rope.head_dim = head_dim();
    std::vector<OpCall> ops = linear_backward(c_, q_width());
    ops.push_back({"attention_backward", 1, attention_backward_cost(a)});
    ops.push_back({"rope_backward", 1, rope_backward_cost(rope)});
    append(ops, linear_backward(qkv_width(), c_));
    return ops;
  }

  std::vector<OpCall> dense(int64_t width) const {
    SwigluForward<bf16> a{};
    a.h = shaped<bf16>(n_, width);
    a.gate_up = shaped<const bf16>(n_, 2 * width);
    return {
        linear(2 * width, c_), {"swiglu_forward", 1, swiglu_forward_cost(a)}, linear(c_, width)};
  }
  // add: whether dx is added to a gradient that is there.
  std::vector<OpCall> dense_backward(int64_t width, bool add = false) const {
    SwigluBackward<bf16> a{};
    a.dh = shaped<const bf16>(n_, width);
    a.gate_up = shaped<const bf16>(n_, 2 * width);
    a.dgate_up = shaped<bf16>(n_, 2 * width);
    std::vector<OpCall> ops = linear_backward(c_, width);
    ops.push_back({"swiglu_backward", 1, swiglu_backward_cost(a)});
    append(ops, linear_backward(2 * width, c_, add));
    return ops;
  }

  std::vector<OpCall> experts() const {
    const MoeConfig& m = *model_.moe;
    std::vector<OpCall> ops{
        {"linear_forward", 1,
         linear_forward_cost<bf16, float>({.y = shaped<float>(n_, m.experts),
                                           .x = wide(),
                                           .weight = weight<bf16>(m.experts, c_)})},
        {"router_forward", 1, router_forward_cost(router())},
        {"dispatch", 1,
         dispatch_cost({.offsets = shaped<int32_t>(m.experts + 1),
                        .token = shaped<int32_t>(n_ * m.top_k),
                        .slot = shaped<int32_t>(n_, m.top_k),
                        .partial = {},
                        .expert = shaped<const int32_t>(2 * n_, m.top_k)})}};  // twice, then
    if (expert_ranks_ > 1) ops.push_back(gather());
    GroupedSwigluForward<bf16> up{};
    up.h = shaped<bf16>(rows(), m.expert_ffn);
    up.gate_up = shaped<bf16>(rows(), 2 * m.expert_ffn);
    up.x = shaped<const bf16>(rows(), c_);
    up.weight.plain = shaped<const bf16>(local_experts(), 2 * m.expert_ffn, c_);
    ops.push_back({"grouped_swiglu_forward", expert_ranks_, grouped_swiglu_forward_cost(up)});
    GroupedForward<bf16> down{};
    down.y = shaped<bf16>(rows(), c_);
    down.x = shaped<const bf16>(rows(), m.expert_ffn);
    down.weight.plain = shaped<const bf16>(local_experts(), c_, m.expert_ffn);
    ops.push_back({"grouped_linear_forward", expert_ranks_, grouped_linear_forward_cost(down)});
    if (m.shared > 0) append(ops, dense(m.shared * m.expert_ffn));
    CombineForward<bf16> combine{};
    combine.y = wide();
    combine.expert_out = shaped<const bf16>(n_ * m.top_k, c_);
    combine.slot = shaped<const int32_t>(n_, m.top_k);
    combine.gate = shaped<const float>(n_, m.top_k);
    if (m.shared > 0) combine.add = wide();
    ops.push_back({"combine_forward", 1, combine_forward_cost(combine)});
    return ops;
  }
  std::vector<OpCall> experts_backward() const {
    const MoeConfig& m = *model_.moe;
    CombineBackward<bf16> combine{};
    combine.dy = wide();
    combine.expert_out = shaped<const bf16>(n_ * m.top_k, c_);
    combine.slot = shaped<const int32_t>(n_, m.top_k);
    combine.gate = shaped<const float>(n_, m.top_k);
    std::vector<OpCall> ops{{"combine_backward", 1, combine_backward_cost(combine)}};
    if (expert_ranks_ > 1) ops.push_back(clearing_sources());
    const auto wgrad = [&](int64_t out, int64_t in) {
      GroupedWgrad<bf16> a{};
      a.dweight = shaped<float>(local_experts(), out, in);
      a.dy = shaped<const bf16>(rows(), out);
      a.x = shaped<const bf16>(rows(), in);
      ops.push_back({"grouped_linear_wgrad", expert_ranks_, grouped_linear_wgrad_cost(a)});
    };
    wgrad(c_, m.expert_ffn);
    GroupedSwigluDgrad<bf16> dgrad{};
    dgrad.dgate_up = shaped<bf16>(rows(), 2 * m.expert_ffn);
    dgrad.gate_up = shaped<const bf16>(rows(), 2 * m.expert_ffn);
    dgrad.dy = shaped<const bf16>(rows(), c_);
    dgrad.weight.plain = shaped<const bf16>(local_experts(), c_, m.expert_ffn);
    ops.push_back({"grouped_swiglu_dgrad", expert_ranks_, grouped_swiglu_dgrad_cost(dgrad)});
    wgrad(2 * m.expert_ffn, c_);
    GroupedDgrad<bf16> dx{};
    dx.dx = shaped<bf16>(rows(), c_);
    dx.dy = shaped<const bf16>(rows(), 2 * m.expert_ffn);
    dx.weight.plain = shaped<const bf16>(local_experts(), 2 * m.expert_ffn, c_);
    ops.push_back({"grouped_linear_dgrad", expert_ranks_, grouped_linear_dgrad_cost(dx)});
    if (expert_ranks_ > 1) append(ops, sums_over_sources());
    ReduceByToken<bf16> reduce{};
    reduce.dx = wide();
    reduce.dexpert_in = shaped<const bf16>(n_ * m.top_k, c_);
    reduce.slot = shaped<const int32_t>(n_, m.top_k);
    ops.push_back({"reduce_by_token", 1, reduce_by_token_cost(reduce)});
    if (m.shared > 0) append(ops, dense_backward(m.shared * m.expert_ffn, true));
    append(ops, router_backward());
    return ops;
  }
  std::vector<OpCall> router_backward() const {
    const MoeConfig& m = *model_.moe;
    RouterBackward<bf16> back{};
    back.dgate = shaped<const float>(n_, m.top_k);
    back.expert = shaped<const int32_t>(n_, m.top_k);
    back.logits = shaped<const float>(n_, m.experts);
    back.settings = router().settings;
    back.z_weight = float(m.router.z_alpha);
    back.aux_weight = float(m.router.aux_alpha);
    std::vector<OpCall> ops;
    if (sparse_linear_pays_on_gpu(m.experts, m.top_k) && router_backward_is_sparse(back)) {
      back.dchosen = shaped<float>(n_, m.top_k);
      ops.push_back({"router_backward", 1, router_backward_cost(back)});
      ops.push_back(sparse_linear_backward());
      return ops;
    }
    back.dlogits = shaped<bf16>(n_, m.experts);
    ops.push_back({"router_backward", 1, router_backward_cost(back)});
    append(ops, linear_backward(m.experts, c_, true));
    return ops;
  }

  static void append(std::vector<OpCall>& to, std::vector<OpCall> more) {
    to.insert(to.end(), more.begin(), more.end());
  }

 private:
  View<bf16, 2> wide() const { return shaped<bf16>(n_, c_); }
  int64_t head_dim() const { return model_.resolved_head_dim(); }
  int64_t q_width() const { return model_.heads * head_dim(); }
  int64_t qkv_width() const { return q_width() + 2 * model_.resolved_kv_heads() * head_dim(); }
  // Of one call: those of one source, with even loads.
  int64_t rows() const { return n_ * model_.moe->top_k / expert_ranks_; }
  int64_t local_experts() const { return model_.moe->experts / expert_ranks_; }
  int64_t down_values() const { return local_experts() * c_ * model_.moe->expert_ffn; }
  int64_t gate_up_values() const { return 2 * down_values(); }

  // Expert ranks: rows are sent in the order of their slots. Experts that are where the tokens are
  // read them by token.
  OpCall gather() const {
    const int64_t slots = n_ * model_.moe->top_k;
    EmbeddingForward<bf16> a{};
    a.y = shaped<bf16>(slots, c_);
    a.weight = wide();
    a.token = shaped<const int32_t>(slots);
    return {"embedding_forward", 1, embedding_forward_cost(a)};
  }
  // Expert ranks: the gradients from the rows of each source begin at zero; a tree adds those of
  // all sources (engine/part_sums.h), and the sum goes to the gradients that are there.
  OpCall clearing_sources() const {
    const int64_t bytes = int64_t(sizeof(float)) * (gate_up_values() + down_values());
    return {"zero", expert_ranks_, zero_cost({.x = shaped<std::byte>(bytes)})};
  }
  std::vector<OpCall> sums_over_sources() const {
    std::vector<OpCall> ops = ops_of_part_sums(expert_ranks_, gate_up_values() + down_values());
    ops.push_back(carry_sum_of(gate_up_values(), 1));
    ops.push_back(carry_sum_of(down_values(), 1));
    return ops;
  }

  OpCall linear(int64_t out, int64_t in) const {
    return {"linear_forward", 1,
            linear_forward_cost<bf16, bf16>({.y = shaped<bf16>(n_, out),
                                             .x = shaped<const bf16>(n_, in),
                                             .weight = weight<bf16>(out, in)})};
  }
  std::vector<OpCall> linear_backward(int64_t out, int64_t in, bool add = false) const {
    LinearDgrad<bf16> dgrad{.dx = shaped<bf16>(n_, in),
                            .dy = shaped<const bf16>(n_, out),
                            .weight = weight<bf16>(out, in)};
    if (add) dgrad.add = shaped<const bf16>(n_, in);
    const LinearWgrad<bf16> wgrad{.dweight = shaped<float>(out, in),
                                  .dy = shaped<const bf16>(n_, out),
                                  .x = shaped<const bf16>(n_, in)};
    return {{"linear_wgrad", 1, linear_wgrad_cost(wgrad)},
            {"linear_dgrad", 1, linear_dgrad_cost(dgrad)}};
  }
  OpCall sparse_linear_backward() const {
    const MoeConfig& m = *model_.moe;
    const int64_t assignments = n_ * m.top_k;
    SparseLinearBackward<bf16> a{};
    a.dx = wide();
    a.add = wide();
    a.dweight = shaped<float>(m.experts, c_);
    a.dz = shaped<const float>(n_, m.top_k);
    a.expert = shaped<const int32_t>(n_, m.top_k);
    a.offsets = shaped<const int32_t>(m.experts + 1);
    a.token = shaped<const int32_t>(assignments);
    a.x = shaped<const bf16>(assignments, c_);  // a row for each assignment, as counted then
    a.weight = shaped<const bf16>(assignments, c_);
    return {"sparse_linear_backward", 1, sparse_linear_backward_cost(a)};
  }
  RouterForward router() const {
    const MoeConfig& m = *model_.moe;
    RouterForward a{};
    a.expert = shaped<int32_t>(n_, m.top_k);
    a.gate = shaped<float>(n_, m.top_k);
    a.logsumexp = shaped<float>(n_);
    a.counts = shaped<int64_t>(m.experts);
    a.logits = shaped<const float>(n_, m.experts);
    a.settings.score = m.router.score;
    a.settings.aux = m.router.aux_alpha > 0 ? m.router.aux : RouterAux::kNone;
    if (m.router.score == RouterScore::kSigmoid && a.settings.aux == RouterAux::kSwitch) {
      a.score_sum = shaped<float>(n_);
    }
    a.settings.normalize = m.router.normalize_gates ? NormalizeGates::kYes : NormalizeGates::kNo;
    return a;
  }

  const ModelConfig model_;
  const int64_t batch_, sequence_, n_, c_, expert_ranks_;
};

// What a configuration has whose ops were not measured, or "".
std::string not_measured(const Config& config) {
  std::string found;
  const auto add = [&](bool has, const char* what) {
    if (has) found += (found.empty() ? "" : ", ") + std::string(what);
  };
  add(config.model.qk_norm, "model.qk_norm");
  add(config.optimizer.kind != OptimizerKind::kAdamW, "optimizer.kind muon");
  add(config.optimizer.state != StateFormat::kFp32, "optimizer.state bf16");
  return found;
}

size_t index_of(const std::vector<ParameterSpec>& specs, const std::string& name) {
  const auto found = std::find_if(specs.begin(), specs.end(),
                                  [&](const ParameterSpec& s) { return s.name == name; });
  CHECK(found != specs.end(), "no parameter %s", name.c_str());
  return size_t(found - specs.begin());
}

}  // namespace

StepOps ops_of_step(const Config& config, const std::vector<ParameterSpec>& specs,
                    const ExpertShare& share) {
  const ModelConfig& model = config.model;
  const std::string left_out = not_measured(config);
  if (!left_out.empty()) {
    throw UserError("the times of the ops of this model were not measured: it has " + left_out,
                    "simulate it with model.qk_norm=false, optimizer.kind=adamw and "
                    "optimizer.state=fp32");
  }
  const Lists lists(config, share);
  StepOps step;
  for (const ParameterSpec& spec : specs) {
    const int64_t ranks = spec.role == Role::kRoutedExpert ? share.expert_ranks : 1;
    step.zeroing.push_back(
        {"zero gradients", 1, zero_cost({.x = shaped<std::byte>(4 * spec.size() / ranks)})});
  }
  step.forward = lists.embedding();
  for (int64_t l = 0; l < model.layers; ++l) {
    step.forward.push_back(lists.norm(l > 0));
    Lists::append(step.forward, lists.attention());
    step.forward.push_back(lists.norm(true));
    Lists::append(step.forward, is_moe_block(model, l) ? lists.experts() : lists.dense(model.ffn));
  }
  step.forward.push_back(lists.norm(true));

  step.backward.push_back({lists.loss(), index_of(specs, "final.norm") + 1});
  step.backward.push_back(
      {{lists.clearing_residual(), lists.norm_backward(true)}, index_of(specs, "final.norm")});
  for (int64_t l = model.layers; l-- > 0;) {
    const std::string block = "blocks." + std::to_string(l);
    BackwardStage ffn{
        is_moe_block(model, l) ? lists.experts_backward() : lists.dense_backward(model.ffn),
        index_of(specs, block + ".ffn.norm")};
    ffn.ops.push_back(lists.norm_backward(true));
    step.backward.push_back(std::move(ffn));
    BackwardStage attention{lists.attention_backward(), index_of(specs, block + ".attn.norm")};
    attention.ops.push_back(lists.norm_backward(l > 0));
    step.backward.push_back(std::move(attention));
  }
  step.backward.push_back({lists.embedding_backward(), 0});
  return step;
}

double router_flops_of_logit() {
  RouterForward a{};
  a.logits = shaped<const float>(1, 1);
  return router_forward_cost(a).flops;
}

std::vector<OpCall> ops_of_part_sums(int64_t parts, int64_t values) {
  std::vector<OpCall> ops;
  if (parts == 1) return ops;
  for (int64_t part = 0; part < parts; ++part) {
    const auto bits = uint64_t(part);
    const bool last = part + 1 == parts;
    ops.push_back(carry_sum_of(values, last ? std::popcount(bits) : std::countr_one(bits)));
  }
  return ops;
}

std::vector<OpCall> ops_of_update(const std::vector<int64_t>& elements_of_matrices,
                                  const std::vector<int64_t>& elements_of_vectors) {
  std::vector<OpCall> ops;
  double elements = 0;
  for (const auto* sizes : {&elements_of_matrices, &elements_of_vectors}) {
    for (const int64_t size : *sizes) elements += double(size);
  }
  ops.push_back({"global_norm", 1, {.bytes = 4 * elements, .flops = 2 * elements}});
  const auto update = [&](int64_t size, bool matrix) {
    AdamW<bf16> a{};
    a.master = shaped<float>(size);
    if (matrix) a.weight = shaped<bf16>(size);
    a.grad = shaped<const float>(size);
    ops.push_back({"adamw", 1, adamw_cost(a)});
  };
  for (const int64_t size : elements_of_matrices) update(size, true);
  for (const int64_t size : elements_of_vectors) update(size, false);
  return ops;
}

}  // namespace assay
