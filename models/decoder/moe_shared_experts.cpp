// MoeSublayer: the routed experts where several ranks share them. Rows are computed one source rank
// after the other, with the calls, shapes and order of rows of that rank's micro-batch, so that the
// bits are those of experts which are where the tokens are.
#include "base/bf16.h"
#include "models/decoder/moe_sublayer.h"
#include "ops/carry_sum.h"
#include "ops/embedding.h"
#include "ops/zero.h"

namespace assay {

template <typename T>
void MoeSublayer<T>::gather_slots(Exec on, View<const T, 2> x, View<T, 2> slots) const {
  embedding_forward<T>(on, {.y = slots, .weight = x, .token = token_.rows(0, slots.dim[0])});
}

// The first round comes last, so that its activations are what backward finds.
template <typename T>
void MoeSublayer<T>::forward_shared(Exec on, const QuantPass& q, View<const T, 2> x) {
  const View<T, 2> slots = expert_out_.rows(0, x.dim[0] * moe_.top_k);
  exchange_->route(on, offsets_);
  gather_slots(on, x, slots);
  for (int64_t round = exchange_->rounds(); round-- > 0;) {
    exchange_->to_experts<T>(on, round, slots, received_);
    compute(on, q, round);
    exchange_->from_experts<T>(on, round, sharing_.computed, slots);
  }
}

// The activations of the first round are there; those of the others are computed again, from inputs
// that wait where the gradients of these inputs will be.
template <typename T>
void MoeSublayer<T>::backward_shared(Exec on, const QuantPass& q, View<const T, 2> x) {
  const int64_t assignments = x.dim[0] * moe_.top_k;
  const View<T, 2> dexpert_in = s_.dexpert_in.rows(0, assignments);
  if (exchange_->rounds() > 1) gather_slots(on, x, dexpert_in);
  for (int64_t round = 0; round < exchange_->rounds(); ++round) {
    if (round > 0) {
      exchange_->to_experts<T>(on, round, dexpert_in, received_);
      compute(on, q, round);
    }
    exchange_->to_experts<T>(on, round, s_.dexpert_out.rows(0, assignments), sharing_.gradient);
    compute_backward(on, q, round);
    exchange_->from_experts<T>(on, round, sharing_.computed, dexpert_in);
  }
}

template <typename T>
void MoeSublayer<T>::compute(Exec on, const QuantPass& q, int64_t round) {
  for (const ExpertExchange::Source& source : exchange_->sources(round)) {
    if (source.count == 0) continue;
    const auto rows = [&](const View<T, 2>& all) { return all.rows(source.first, source.count); };
    experts_.forward(on, q, {.offsets = source.offsets},
                     {.y = rows(sharing_.computed),
                      .gate_up = rows(gate_up_),
                      .h = rows(h_),
                      .x = rows(received_),
                      .amax = {}});
  }
}

// The gradients of the weights: each source is a part of the batch.
template <typename T>
void MoeSublayer<T>::compute_backward(Exec on, const QuantPass& q, int64_t round) {
  const View<float, 3> gate_up = experts_.gate_up_gradient(), down = experts_.down_gradient();
  const View<float, 1> sum = sharing_.weight_gradient;
  const View<float, 1> of_gate_up = sum.rows(0, gate_up.size());
  const View<float, 1> of_down = sum.rows(gate_up.size(), down.size());
  const auto shaped = [](View<float, 1> values, const View<float, 3>& as) {
    return View<float, 3>{values.data, {as.dim[0], as.dim[1], as.dim[2]}};
  };
  const std::vector<ExpertExchange::Source>& sources = exchange_->sources(round);
  for (size_t s = 0; s < sources.size(); ++s) {
    const ExpertExchange::Source& source = sources[s];
    const auto rows = [&](const View<T, 2>& all) { return all.rows(source.first, source.count); };
    zero(on, sum);
    if (source.count > 0) {
      experts_.backward(on, q, {.offsets = source.offsets},
                        {.dx = rows(sharing_.computed),
                         .dgate_up = {s_.dgate_up.data, {source.count, 2 * moe_.expert_ffn}},
                         .dh = {s_.dh.data, {source.count, moe_.expert_ffn}},
                         .dy = rows(sharing_.gradient),
                         .x = rows(received_),
                         .gate_up = rows(gate_up_),
                         .h = rows(h_),
                         .amax = {},
                         .dgate_up_weight = shaped(of_gate_up, gate_up),
                         .ddown_weight = shaped(of_down, down)});
    }
    sharing_.tree->end_part(on, int64_t(s));
  }
  const auto add = [&](const View<float, 3>& to, View<float, 1> values) {
    const View<float, 1> all{to.data, {to.size()}};
    CarrySum<float> a{.to = all, .own = all, .carried = 1};
    a.earlier[0] = values;
    carry_sum(on, a);
  };
  add(gate_up, of_gate_up);
  add(down, of_down);
}

#define ASSAY_SHARED_EXPERTS(T)                                                           \
  template void MoeSublayer<T>::forward_shared(Exec, const QuantPass&, View<const T, 2>); \
  template void MoeSublayer<T>::backward_shared(Exec, const QuantPass&, View<const T, 2>);
ASSAY_SHARED_EXPERTS(float)
ASSAY_SHARED_EXPERTS(bf16)

}  // namespace assay
