// The class behind make_decoder. decoder.cpp: memory, training, evaluation; decoder_inference.cpp:
// scoring and generation of texts of any length.
#pragma once

#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cuda/graph.h"
#include "models/decoder/decoder.h"
#include "models/decoder/moe_sublayer.h"
#include "models/decoder/scored_rows.h"
#include "models/decoder/sublayer.h"
#include "models/linear/precision.h"

namespace assay {

template <typename T>
class Decoder final : public Model {
 public:
  Decoder(const ModelConfig& config, const DecoderOptions& options);

  Backend backend() const override { return options_.backend; }
  void plan(MemoryPlan& plan) override;
  void bind(Exec on) override;
  void initialise(Exec on, uint64_t seed) override { store_.initialise(on, seed); }
  void refresh_weights(Exec on) override;
  void repack_weights(Exec on) override;
  void enter(Exec on, PrecisionPhase phase) override;
  int64_t workspace_bytes() const override;

  std::vector<ParameterRef> parameters() override { return store_.trained(); }
  std::vector<TensorRef> tensors() override { return store_.tensors(); }
  std::vector<Slice> slices() override { return store_.slices(); }

  void begin_step(Exec on, const MicroScale& scale) override;
  void next_part(Exec on) override;
  void forward_backward(Exec on, const TokenBatch& batch) override;
  void sum_counts(Exec on, Group& ranks) override;
  void read_back(Exec on) override;
  void gather_results(Group& ranks) override;
  double loss_sum() const override;
  void evaluate(Exec on, const TokenBatch& batch, View<float, 1> nats) override;
  void set_probe(MoeProbe* probe) override {
    for (MoeSublayer<T>* sublayer : moe_sublayers_) sublayer->set_probe(probe);
  }
  void score(Exec on, const TextBatch& batch, View<float, 1> nats,
             View<uint8_t, 1> most_likely) override;

  void plan_cache(MemoryPlan& plan, int64_t texts) override;
  void extend(Exec on, const Extension& extension, View<float, 2> logits) override;

  void update_router_bias(Exec on, float lr_fraction) override;
  const std::vector<RouterLayerState>& router_layers() override;
  const std::vector<QuantisedOperandState>& quantised_operands() const override {
    return quantised_states_;
  }
  NotFiniteOperand not_finite_operand() const override;
  void route(Exec on, const TokenBatch& batch, View<int32_t, 2> expert) override;

 private:
  // Plans the sublayers' buffers. For inference, sublayers of the same kind share them: aliases_
  // maps each view of the later sublayers to the view of the first whose address it takes in bind.
  void plan_sublayers(MemoryPlan& plan);
  struct Alias {
    void** address;
    void* const* of;
  };
  bool training() const { return options_.purpose == Purpose::kTraining; }
  void refresh_quantised(Exec on);
  // At the beginning of a part of the batch.
  void begin_gradients(Exec on);
  // Stores the input of each sublayer in streams_; the last entry is the final norm's. The final
  // norm's y has the rows of shape.kept, or all rows if it is empty.
  void forward(Exec on, const TokenBatch& batch, Pass pass);
  void forward(Exec on, View<const int32_t, 1> token, BatchShape shape, Pass pass);
  void backward(Exec on, const TokenBatch& batch);
  // Queues a micro-batch's kernels, which depend only on the fields of Key, so that they can be
  // recorded and replayed. Must not update counters on the host: a replay does not call it.
  void queue_micro_batch(Exec on, const TokenBatch& batch);
  // Uploads the run's number of the next micro-batch, which stochastic rounding draws by.
  void count_draw(Exec on);
  struct Key {
    const std::byte* workspace;
    int64_t batch, sequence;
    float micro_share;
    PrecisionPhase phase;
    MicroScale::Sample sample;
    bool operator==(const Key&) const = default;
  };
  // For score() and extend() (models/decoder/decoder_inference.cpp). placed: the values where the
  // ops run, copied into `to` on a GPU.
  void check_texts(const TextBatch& batch) const;
  template <typename E>
  View<const E, 1> placed(Exec on, View<E, 1> to, View<const E, 1> from) const;
  BatchShape texts_shape(Exec on, const TextBatch& batch, const ScoredRows& asked) const;
  // Logits of rows of the final norm, before config_.logit_gain.
  void head_logits(Exec on, View<const T, 2> rows, View<float, 2> logits) const;
  // The batch where the ops run. On a GPU its addresses are always the same, as replays need.
  TokenBatch uploaded(Exec on, const TokenBatch& batch) const;
  View<T, 2> hidden(int64_t tokens) const { return final_norm_.y.rows(0, tokens); }
  bool tied() const { return config_.tie_embeddings; }
  std::string head_name() const { return tied() ? "embed.weight" : "head.weight"; }

  const ModelConfig config_;
  const DecoderOptions options_;
  const PrecisionTable precision_;
  const BatchShape largest_;
  ParameterStore<T> store_;
  Scratch<T> scratch_;
  ExpertSharing<T> sharing_;
  PrecisionState state_;  // of the current pass
  QuantPass quant_pass() const { return {scratch_.quant, state_}; }
  KvCache<T> cache_;          // planned by plan_cache()
  View<float, 2> cos_, sin_;  // (T, D/2)

  std::vector<std::unique_ptr<Sublayer<T>>> sublayers_;
  std::vector<Alias> aliases_;                  // for inference
  std::vector<MoeSublayer<T>*> moe_sublayers_;  // the MoE layers of sublayers_
  std::vector<QuantisedProducts*> quantised_;   // of all sublayers
  std::vector<QuantisedOperandState> quantised_states_;
  ResidualNorm<T> final_norm_;
  View<const T, 2> embedding_;
  View<float, 2> dembedding_, dhead_;
  WeightMatrix<T> head_;

  std::vector<ResidualStream<T>> streams_;  // one more than sublayers_
  View<std::byte, 1> head_scratch_;
  View<double, 1> loss_sum_, eval_sum_;
  MicroScale scale_;           // of the step
  View<float, 1> loss_scale_;  // (1)   scale_.loss where the ops run, so that replays see changes
  View<float, 1> host_scale_;  // (1)   on the host
  int64_t micro_ = 0;          // micro-batches queued since begin_step
  // Gradients that the first micro-batch of a part stores where first_stores(); the others are
  // zeroed before it.
  std::set<std::string> stored_gradients_;
  bool first_of_part_ = true;
  bool evaluation_ready_ = false;      // the decoded weights that evaluation reads are current
  View<uint32_t, 1> host_draws_;       // (kDraws)   on the host, a ring: one entry per micro-batch
  int64_t part_ = 0;                   // of the step's batch
  int64_t read_parts_ = 0;             // parts whose loss is in read_loss_sum_
  bool measures_read_ = false;         // by the last read_back()
  View<double, 1> read_loss_sum_;      // (parts)   on the host
  View<uint32_t, 1> read_not_finite_;  // on the host, with quantised products
  // With Backend::kGpu only.
  View<int32_t, 1> token_, target_;                   // (N)
  View<float, 1> nats_;                               // (N)
  View<int32_t, 1> position_, row_, kept_;            // (N)
  View<AttentionSegment, 1> segment_, last_segment_;  // (N)
  View<uint8_t, 1> most_likely_;                      // (N)
  // The first micro-batch of a part, which stores gradients, and the others.
  gpu::Replayed<Key> first_micro_batch_, micro_batch_;
  std::vector<RouterLayerState> router_layers_;
};

}  // namespace assay
