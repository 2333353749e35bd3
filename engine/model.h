// What the engine knows of a network: parameters to optimise, a micro-batch forward and backward,
// evaluation, and what its routers did. models/decoder/decoder.h implements it; the engine never
// includes models.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/bf16.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "cuda/memory_plan.h"
#include "engine/parameter_spec.h"
#include "engine/tensor_ref.h"
#include "ops/varlen_attention.h"

namespace assay {

// B sequences of T positions in the host's memory; rows are tokens in order. target < 0 is not
// counted.
struct TokenBatch {
  View<const int32_t, 1> token;   // (B * T)
  View<const int32_t, 1> target;  // (B * T)
  int64_t batch = 0;              // B
  int64_t sequence = 0;           // T
};

// Texts of any lengths, one behind the other, in the host's memory. A segment's prefix are rows of
// an earlier segment of the same batch: what several texts begin with is there once. What is asked:
// how well `row` predicts `target`; a row may be asked more than once.
struct TextBatch {
  View<const int32_t, 1> token;             // (N)
  View<const int32_t, 1> position;          // (N)   in its text
  View<const AttentionSegment, 1> segment;  // (S)
  View<const int32_t, 1> row;               // (M)   in [0, N)
  View<const int32_t, 1> target;            // (M)   in [0, V)
  // The last block computes queries, feed-forward and all that follows for the rows that are asked
  // alone, or, for comparison, for all of them. The scores are the same.
  enum class LastBlock { kAskedRows, kAllRows } last_block = LastBlock::kAskedRows;
};

// New tokens of texts that are kept in a cache, in the host's memory. A text goes on behind its
// first `position` tokens, which earlier calls have given; what the cache had behind them is
// replaced. A text has one part.
struct TextPart {
  int64_t text = 0;      // in [0, the texts planned for)
  int64_t position = 0;  // of its first new token
  int64_t tokens = 0;    // at least 1
};
struct Extension {
  View<const int32_t, 1> token;  // (N)   of the first part, then of the second, ...
  View<const TextPart, 1> part;  // (S)
};

// One trained tensor as the optimizer sees it.
struct ParameterRef {
  const ParameterSpec* spec = nullptr;
  View<float, 1> master;
  View<float, 1> grad;
  View<bf16, 1> weight = {};  // the bf16 working copy; empty when products read the master
};

// kRecipe: products in the formats of precision.recipe. kBf16: none of them, the last steps of
// precision.bf16_tail.
enum class PrecisionPhase { kRecipe, kBf16 };

// What a micro-batch of the step contributes: gradients are scaled so that micro-batches just add.
struct MicroScale {
  float loss = 1.0f;  // 1 / counted targets of the whole step
  float micro_share =
      1.0f;  // 1 / micro-batches of the step (auxiliary and z-loss are means over tokens)
  int64_t first_micro =
      0;  // micro-batches of the run before this step: what stochastic rounding counts by
  enum class Sample {
    kNothing,
    kFormats
  } sample = Sample::kNothing;  // measure what quantisation loses
};

// One MoE layer over the last step, for telemetry. Views belong to the model.
struct RouterLayerState {
  int64_t layer = 0;  // block index
  int64_t top_k = 0;
  View<const int64_t, 1> counts;  // (E) assignments of the step
  View<const float, 1> bias;      // (E) empty when there is none
  double aux = 0;                 // mean over the step's micro-batches, before aux_alpha
  double z = 0;                   // mean over tokens of logsumexp^2, before z_alpha
  // Means over the last micro-batch's tokens; margin: score of the last chosen less that of the
  // first unchosen expert, lead: of the first chosen.
  double margin = 0, lead = 0;
  double gate_entropy_nats = 0;
};

// One operand that a recipe quantises. Views belong to the model.
struct QuantisedOperandState {
  std::string weight;              // parameter of the product
  std::string role;                // attention, dense_ffn, experts, shared_experts
  int64_t layer = 0;               // block index
  std::string operand;             // fprop.input, fprop.weight, dgrad.gradient, ...
  std::string format;              // mxfp8, nvfp4+sr, ...
  uint32_t site = 0;               // its number, from 1
  View<const double, 1> measures;  // (kFakeMeasures) of ops/fake_quantise.h, of a sampled step
};

// The quantised operand whose largest magnitude was the first, in the order of the computation, not
// to be finite: nothing that is computed from it is a number.
struct NotFiniteOperand {
  const QuantisedOperandState* operand = nullptr;  // null: all are finite
  float amax = 0;                                  // infinity, or NaN
};

class Model {
 public:
  virtual ~Model() = default;
  virtual Backend backend() const = 0;

  // Registers every buffer for micro-batches of at most batch x sequence tokens.
  virtual void plan(MemoryPlan& plan) = 0;
  // After MemoryPlan::allocate(): takes the addresses, fills tables.
  virtual void bind(Exec on) = 0;
  virtual void initialise(Exec on, uint64_t seed) = 0;
  // Working copies from the masters (rounding and packing): after initialise and load.
  virtual void refresh_weights(Exec on) = 0;
  // Packed forms only: the optimizer has rounded the working copies already.
  virtual void repack_weights(Exec on) = 0;
  // Scratch that matrix products need in Exec::workspace.
  virtual int64_t workspace_bytes() const = 0;

  // Of the steps to come. Where it changes, the copies of the weights are made anew.
  virtual void enter(Exec on, PrecisionPhase phase) = 0;

  virtual std::vector<ParameterRef> parameters() = 0;
  // Everything a checkpoint holds of the model: masters and buffers.
  virtual std::vector<TensorRef> tensors() = 0;

  // Zeroes gradients, counts, sums. After the wait(on) that ended the step before.
  virtual void begin_step(Exec on, const MicroScale& scale) = 0;
  // On a GPU queued only: the batch's memory stays as it is until wait(on).
  virtual void forward_backward(Exec on, const TokenBatch& batch) = 0;
  // Queues copies of what loss_sum() and router_layers() show: it is theirs after wait(on).
  virtual void read_back(Exec on) = 0;
  // Sum of nats over the step's counted targets at the last read_back().
  virtual double loss_sum() const = 0;
  // Forward only; per-target nats into `nats` (0 where not counted), the host's. Leaves gradients
  // and counts alone.
  virtual void evaluate(Exec on, const TokenBatch& batch, View<float, 1> nats) = 0;

  // Forward only, of at most as many rows, and questions, as a micro-batch has tokens; positions
  // below its sequence length. nats (M): of the targets. most_likely (M): 1 where no token is more
  // likely, and no smaller id as likely. The host's.
  virtual void score(Exec on, const TextBatch& batch, View<float, 1> nats,
                     View<uint8_t, 1> most_likely) = 0;

  // For generation only: registers keys and values of so many texts of at most a micro-batch's
  // sequence length. After plan().
  virtual void plan_cache(MemoryPlan& plan, int64_t texts) = 0;
  // Forward only, of at most as many tokens as a micro-batch has. logits (S, V): what follows each
  // part's last token. The host's.
  virtual void extend(Exec on, const Extension& extension, View<float, 2> logits) = 0;

  // rate: bias_rate already multiplied by the schedule when bias_follows_lr.
  virtual void update_router_bias(Exec on, float lr_fraction) = 0;
  // The MoE layers in order, as the last read_back() found them (margin and lead: at the last
  // update_router_bias); valid until the next call.
  virtual const std::vector<RouterLayerState>& router_layers() = 0;
  // In order of the layers; measures as the last read_back() of a sampled step found them. The same
  // operands in every call.
  virtual const std::vector<QuantisedOperandState>& quantised_operands() const = 0;
  // Of everything quantised between the last two read_back()s (the first: since bind()), sampled or
  // not.
  virtual NotFiniteOperand not_finite_operand() const = 0;
  // Experts chosen for these tokens, per MoE layer in order of router_layers(), (layers, tokens *
  // K), the host's.
  virtual void route(Exec on, const TokenBatch& batch, View<int32_t, 2> expert) = 0;
};

}  // namespace assay
