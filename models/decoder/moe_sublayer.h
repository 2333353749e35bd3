// The mixture-of-experts sublayer: x + sum over the chosen experts of gate * SwiGLU_e(RMSNorm(x)),
// plus the shared expert. Keeps what telemetry reads: the step's assignment counts and means of the
// router's measures.
#pragma once

#include "comm/layout.h"
#include "models/decoder/expert_exchange.h"
#include "models/decoder/expert_sharing.h"
#include "models/decoder/sublayer.h"
#include "models/decoder/swiglu_ffn.h"
#include "ops/router.h"

namespace assay {

template <typename T>
class MoeSublayer final : public Sublayer<T> {
 public:
  // sharing: the parts of a batch, and how ranks share the experts; it outlives the sublayer.
  MoeSublayer(const BlockParts<T>& parts, int64_t layer, const ExpertSharing<T>& sharing);

  SublayerKind kind() const override { return SublayerKind::kMoe; }
  void plan(MemoryPlan& plan, int64_t tokens) override;
  void bind(const ParameterStore<T>& store) override;
  ResidualStream<T> forward(Exec on, const PrecisionState& precision, const ResidualStream<T>& in,
                            View<T, 2> after, const BatchShape& shape, Pass pass) override;
  void backward(Exec on, const PrecisionState& precision, const ResidualStream<T>& in,
                const BatchShape& shape, const MicroScale& scale) override;
  int64_t workspace_bytes(Backend backend, int64_t tokens) const override;
  void name_stored_gradients(std::vector<std::string>& names) const override;
  std::vector<QuantisedProducts*> quantised() const override;

  // Of the following evaluations; null: none.
  void set_probe(MoeProbe* probe) { probe_ = probe; }
  void begin_step(Exec on);
  // The step's counts become those of all ranks (Model::sum_counts).
  void sum_counts(Exec on, Group& ranks);
  // After read_back() and a wait: what state() says becomes that of the whole step.
  void gather_results(Group& ranks);
  // Keeps the measures of the part that ended and begins the next (Model::next_part).
  void next_part(Exec on);
  // Updates the host's counters for a micro-batch of `tokens`; separate from forward(), which is
  // not called when its kernels are replayed.
  void count_micro_batch(int64_t tokens);
  // Queues the copies to the host that state() reads.
  void read_back(Exec on);
  // At the end of a step, with ranks after sum_counts(): measures margin and lead with the bias
  // used for routing, then updates the bias at rate bias_rate (auto: the lead / (2 bias_steps)),
  // times lr_fraction with bias_follows_lr.
  void update_bias(Exec on, float lr_fraction);
  RouterLayerState state() const;
  // (tokens, K) experts chosen in the last forward pass.
  View<const int32_t, 2> chosen(int64_t tokens) const { return expert_.rows(0, tokens); }

 private:
  using Sublayer<T>::norm_;
  RouterForward router(int64_t tokens, int64_t sequence, Pass pass) const;
  // The routed experts' outputs of n tokens x, into expert_out_; the gradients of their weights and
  // inputs from s_.dexpert_out, into s_.dexpert_in.
  void forward_experts(Exec on, const QuantPass& q, View<const T, 2> x, const FfnAmax& amax);
  void backward_experts(Exec on, const QuantPass& q, View<const T, 2> x, const FfnAmax& amax);
  // The same with experts on several ranks.
  void forward_shared(Exec on, const QuantPass& q, View<const T, 2> x);
  void backward_shared(Exec on, const QuantPass& q, View<const T, 2> x);
  // Of the rows that this rank received in a round.
  void compute(Exec on, const QuantPass& q, int64_t round);
  void compute_backward(Exec on, const QuantPass& q, int64_t round);
  // Rows of x in slot order.
  void gather_slots(Exec on, View<const T, 2> x, View<T, 2> slots) const;
  // Reads s_.dgate; adds to s_.dnorm and to the router's gradient.
  void backward_router(Exec on, View<const T, 2> x, const BatchShape& shape,
                       const MicroScale& scale);
  // Once a step; with bias_rate auto also lead_sum_.
  void measure_margin(Exec on);
  // With several parts, adds the part's counts to the step's and zeroes them. Returns the step's
  // (E) so far, where the ops run.
  View<const int64_t, 1> gather_counts(Exec on);
  // Amax slots in use: of the routed experts, of the shared expert, and of their common input x.
  struct AmaxSlots {
    FfnAmax experts, shared;
    View<float, 1> x;
  };
  AmaxSlots amax_slots(const QuantPass& q) const;
  // What probe_ is shown of n tokens, and what it changes (models/decoder/moe_probe.cpp).
  void show_choices(Exec on, int64_t n);
  void show_outputs(Exec on, int64_t n);
  bool has_bias() const { return moe_.router.bias_rate.on(); }

  const ModelConfig config_;
  const MoeConfig moe_;
  const int64_t layer_;
  const bool trains_;
  const int64_t sequences_;  // of the largest micro-batch
  const std::string name_;
  const Scratch<T>& s_;
  const RouterSettings settings_;

  WeightMatrix<T> router_weight_;  // (E, C)
  View<float, 2> drouter_weight_;
  View<float, 1> bias_;  // (E)
  ExpertProjections<T> experts_;

  View<float, 2> logits_;                 // (N, E)
  View<int32_t, 2> expert_, slot_;        // (N, K)
  View<float, 2> gate_;                   // (N, K)
  View<float, 1> logsumexp_, score_sum_;  // (N)   score_sum_: sigmoid with an aux loss kSwitch
  View<float, 2> aux_slope_;              // (groups, E)   with an aux loss
  View<int32_t, 1> offsets_, token_;      // (E + 1), (A)
  View<T, 2> gate_up_, h_, expert_out_;   // (A, 2F), (A, F), (A, C)
  // With experts on several ranks gate_up_ and h_ are (R, 2F) and (R, F), of the last round that
  // was computed.
  std::optional<ExpertExchange> exchange_;
  View<T, 2> received_;  // (R, C)   their inputs
  std::optional<SwigluFfn<T>> shared_;

  View<int64_t, 1> counts_;       // (E)   of the part, or of the step if it has one part
  View<int64_t, 1> step_counts_;  // (E)   of the step as far as gathered, if it has more parts
  View<int64_t, 1> lead_sum_;     // (kLeadSums)   of the last micro-batch, with bias_rate auto
  View<double, 1> measures_;      // (kRouterMeasures)   summed over the part's micro-batches
  View<float, 1> margin_, lead_;  // (kMarginTokens)
  const ExpertSharing<T>& sharing_;
  const Layout layout_;
  MoeProbe* probe_ = nullptr;
  int64_t part_ = 0;           // of the step's batch
  int64_t read_parts_ = 0;     // parts whose measures are in read_measures_
  int64_t micro_batches_ = 0;  // of this rank since begin_step
  int64_t read_ranks_ = 1;     // whose results are read: after gather_results() those of all
  int64_t last_tokens_ = 0;
  int64_t most_rounds_ = 0;  // of the step's exchanges; after gather_results() of all ranks
  int64_t margins_ = 0;      // rows of margin_ and lead_ in use
  bool measured_ = false;    // the margin, in this step

  struct Margins {
    double margin = 0, lead = 0;
  };
  Margins margins() const;                       // of this rank
  std::optional<Margins> margins_of_last_rank_;  // after gather_results()

  // Copies on the host of the step's counts, bias_, the parts' measures, margin_ and lead_.
  View<int64_t, 1> read_counts_;
  View<float, 1> read_bias_;
  View<double, 2> read_measures_;  // (parts, kRouterMeasures)
  View<float, 1> read_margin_, read_lead_;
};

}  // namespace assay
