// The engine's interface to a network: parameters to optimise, forward and backward of a
// micro-batch, evaluation, and router statistics. models/decoder/decoder.h implements it; the
// engine never includes models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/view.h"
#include "comm/group.h"
#include "cuda/exec.h"
#include "cuda/memory_plan.h"
#include "engine/parameter_spec.h"
#include "engine/tensor_ref.h"
#include "ops/varlen_attention.h"

namespace assay {

// B sequences of T positions in the host's memory; rows are tokens in order. Targets < 0 are not
// counted in the loss.
struct TokenBatch {
  View<const int32_t, 1> token;   // (B * T)
  View<const int32_t, 1> target;  // (B * T)
  int64_t batch = 0;              // B
  int64_t sequence = 0;           // T
};

// Texts of any length, one after another, in the host's memory. A segment's prefix is rows of an
// earlier segment of the same batch, so that texts share a common beginning. Scored is how well
// token `row` predicts `target`; a row may be scored more than once.
struct TextBatch {
  View<const int32_t, 1> token;             // (N)
  View<const int32_t, 1> position;          // (N)   in the token's text
  View<const AttentionSegment, 1> segment;  // (S)
  View<const int32_t, 1> row;               // (M)   in [0, N)
  View<const int32_t, 1> target;            // (M)   in [0, V)
  // kAskedRows: the last block computes queries, feed-forward and all that follows for scored rows
  // only. kAllRows: for all rows, for comparison. The scores are the same.
  enum class LastBlock { kAskedRows, kAllRows } last_block = LastBlock::kAskedRows;
};

// New tokens of texts whose earlier tokens are in the KV cache, in the host's memory. A part
// continues its text after the first `position` tokens, which earlier calls wrote to the cache;
// later cached tokens are replaced. At most one part per text.
struct TextPart {
  int64_t text = 0;      // in [0, texts of plan_cache)
  int64_t position = 0;  // of its first new token
  int64_t tokens = 0;    // at least 1
};
struct Extension {
  View<const int32_t, 1> token;  // (N)   those of the first part, then of the second, ...
  View<const TextPart, 1> part;  // (S)
};

// One trained tensor as the optimizer sees it.
struct ParameterRef {
  const ParameterSpec* spec = nullptr;
  View<float, 1> master;  // of size 0 when `weight` is the master (optimizer.state bf16)
  View<float, 1> grad;
  View<bf16, 1> weight = {};  // the bf16 working copy; empty when products read the master

  bool bf16_state() const { return master.dim[0] == 0; }
  int64_t size() const { return grad.dim[0]; }
};

// kRecipe: products in the formats of precision.recipe. kBf16: all products in bf16, in the last
// steps of a run (precision.bf16_tail).
enum class PrecisionPhase { kRecipe, kBf16 };

// The weight of a micro-batch in its step: gradients are scaled so that micro-batches just add.
struct MicroScale {
  float loss = 1.0f;         // 1 / counted targets of the whole step
  float micro_share = 1.0f;  // 1 / micro-batches of the step, for auxiliary and z-loss
  int64_t first_micro = 0;   // micro-batches of the run before this step, for stochastic rounding
  // kFormats: measure the quantisation errors of this step.
  enum class Sample { kNothing, kFormats } sample = Sample::kNothing;
};

// Statistics of one MoE layer over the last step, for telemetry. Views belong to the model.
struct RouterLayerState {
  int64_t layer = 0;  // block index
  int64_t top_k = 0;
  View<const int64_t, 1> counts;  // (E) assignments of the step
  View<const float, 1> bias;      // (E) empty without a bias
  double aux = 0;                 // mean over the step's micro-batches, before aux_alpha
  double z = 0;                   // mean over tokens of logsumexp^2, before z_alpha
  // Means over the first tokens of the last micro-batch (ops/router.h, RouterMargin). margin: score
  // of the last chosen expert minus that of the first unchosen; lead: of the first chosen minus it.
  double margin = 0, lead = 0;
  double gate_entropy_nats = 0;
  // The most rounds of the step's micro-batches on any rank, where ranks share the experts; else 0.
  int64_t exchange_rounds = 0;
};

// One operand that a recipe quantises. Views belong to the model.
struct QuantisedOperandState {
  std::string weight;              // parameter of the product
  std::string role;                // attention, dense_ffn, experts, shared_experts
  int64_t layer = 0;               // block index
  std::string operand;             // fprop.input, fprop.weight, dgrad.gradient, ...
  std::string format;              // mxfp8, nvfp4+sr, ...
  uint32_t site = 0;               // number of the operand, from 1
  View<const double, 1> measures;  // (kFakeMeasures) of ops/fake_quantise.h, of a sampled step
};

// The first quantised operand, in the order of the computation, whose largest magnitude is not
// finite. Everything computed from it is invalid.
struct NotFiniteOperand {
  const QuantisedOperandState* operand = nullptr;  // null: all are finite
  float amax = 0;                                  // infinity, or NaN
};

// Sees, and may change, what the MoE layers compute in evaluate(): for experiments on a trained
// model (session/dissect.h). All views are on the host and valid during the call; layer is a block
// index. What is left as it was changes no bit of the result.
class MoeProbe {
 public:
  virtual ~MoeProbe() = default;
  enum class Changed { kNo, kYes };
  // After the router: the chosen experts of each token, best first, and their gates.
  virtual Changed routed(int64_t layer, View<int32_t, 2> expert, View<float, 2> gate) = 0;
  // Whether computed() is to be called for the layer.
  virtual bool wants_outputs(int64_t layer) const = 0;
  // After the experts: row slot(t, k) of expert_out (N K, C) is the output of expert(t, k).
  virtual Changed computed(int64_t layer, View<const int32_t, 2> expert,
                           View<const int32_t, 2> slot, View<float, 2> expert_out) = 0;
  // Whether the shared expert of the layer contributes.
  virtual bool keeps_shared(int64_t layer) const = 0;
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Backend backend() const = 0;

  // Registers every buffer, for the largest micro-batch that the model was made for.
  virtual void plan(MemoryPlan& plan) = 0;
  // Call after MemoryPlan::allocate(): takes the addresses, fills tables.
  virtual void bind(Exec on) = 0;
  virtual void initialise(Exec on, uint64_t seed) = 0;
  // Makes the working copies from the masters (rounding and packing). Call after initialise and
  // after loading.
  virtual void refresh_weights(Exec on) = 0;
  // As refresh_weights, after the optimizer has rounded the working copies.
  virtual void repack_weights(Exec on) = 0;
  // Bytes that matrix products need in Exec::workspace.
  virtual int64_t workspace_bytes() const = 0;

  // Sets the phase of the following steps. If it changes, quantised copies of weights are remade.
  virtual void enter(Exec on, PrecisionPhase phase) = 0;

  virtual std::vector<ParameterRef> parameters() = 0;
  // Everything a checkpoint holds of the model: masters and buffers.
  virtual std::vector<TensorRef> tensors() = 0;
  // The same as parts of whole tensors, of which this rank may have a share only.
  virtual std::vector<Slice> slices() = 0;

  // Zeroes gradients, counts, sums. Call after the wait(on) that ends the previous step.
  virtual void begin_step(Exec on, const MicroScale& scale) = 0;
  // Between two parts of the step's batch (engine/part_sums.h): the gradients, and the counts that
  // aux_scope step reads, begin at zero again; loss and router measures of the part are kept.
  virtual void next_part(Exec on) = 0;
  // On a GPU this only queues work: the batch's memory must not change before wait(on).
  virtual void forward_backward(Exec on, const TokenBatch& batch) = 0;
  // With ranks that share a batch, collective: after the last forward_backward of a step the counts
  // of assignments become those of all ranks.
  virtual void sum_counts(Exec on, Group& ranks) = 0;
  // Queues copies to the host of the step's results (loss_sum(), router_layers(), measures), which
  // are valid after wait(on).
  virtual void read_back(Exec on) = 0;
  // With ranks, collective: after the wait(on) that follows read_back(). Loss, router measures,
  // quantisation measures and operands that are not finite become those of all ranks.
  virtual void gather_results(Group& ranks) = 0;
  // Sum of nats over the step's counted targets at the last read_back(), added part by part.
  virtual double loss_sum() const = 0;
  // Forward only. nats (B T), on the host: of each target, 0 if it is not counted. Does not change
  // gradients and counts.
  virtual void evaluate(Exec on, const TokenBatch& batch, View<float, 1> nats) = 0;
  // Of the following evaluate()s; null: none. It outlives them.
  virtual void set_probe(MoeProbe* probe) = 0;

  // Forward only. N, S and M are at most the tokens of a micro-batch, positions below its sequence
  // length. nats (M), on the host: of the targets. most_likely (M), on the host: 1 if no token is
  // more likely than the target, and no smaller id equally likely.
  virtual void score(Exec on, const TextBatch& batch, View<float, 1> nats,
                     View<uint8_t, 1> most_likely) = 0;

  // For generation only, after plan(): registers a KV cache for `texts` texts of at most a
  // micro-batch's sequence length.
  virtual void plan_cache(MemoryPlan& plan, int64_t texts) = 0;
  // Forward only, of at most the tokens of a micro-batch. logits (S, V), on the host: for the token
  // after each part.
  virtual void extend(Exec on, const Extension& extension, View<float, 2> logits) = 0;

  // At the end of a step: updates the routers' selection bias from the counts of the step.
  // lr_fraction: the schedule's share of the peak learning rate, used with bias_follows_lr.
  virtual void update_router_bias(Exec on, float lr_fraction) = 0;
  // The MoE layers in order, as of the last read_back() (margin and lead: of the last
  // update_router_bias before it); valid until the next call.
  virtual const std::vector<RouterLayerState>& router_layers() = 0;
  // In order of the layers, the same operands in every call; measures as of the last read_back() of
  // a sampled step.
  virtual const std::vector<QuantisedOperandState>& quantised_operands() const = 0;
  // The first of all operands quantised between the last two read_back()s (the first time: since
  // bind()), whether sampled or not.
  virtual NotFiniteOperand not_finite_operand() const = 0;
  // expert (layers, tokens * K), on the host: the experts chosen for these tokens, per MoE layer in
  // the order of router_layers().
  virtual void route(Exec on, const TokenBatch& batch, View<int32_t, 2> expert) = 0;
};

}  // namespace assay
