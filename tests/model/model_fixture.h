// A decoder with optimizer and random tokens, planned and allocated, for tests of the whole model.
#pragma once

#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/random.h"
#include "cuda/transfer.h"
#include "engine/optimizer.h"
#include "models/decoder/decoder.h"

namespace assay {

inline MoeConfig six_experts() {
  return {.experts = 6,
          .top_k = 2,
          .shared = 1,
          .expert_ffn = 40,
          .first_dense_layers = 1,
          .router = {.bias_rate = 0, .aux = RouterAux::kNone, .aux_alpha = 0}};
}

// A dense model: 64 wide, two blocks.
inline Config small_config(int64_t vocab_size) {
  Config c;
  c.model.hidden = 64;
  c.model.layers = 2;
  c.model.heads = 2;
  c.model.ffn = 96;
  c.model.vocab_size = vocab_size;
  return c;
}

struct ModelFixture {
  Config config;
  int64_t batch, sequence;
  std::unique_ptr<Model> model;
  std::unique_ptr<Optimizer> optimizer;
  MemoryPlan plan;
  Exec on;
  View<float, 1> nats;
  std::vector<int32_t> token, target;
  int64_t first_micro = 0;  // of the next gradients() call
  MicroScale::Sample sampled = MicroScale::Sample::kNothing;

  // gpu: the context to run on; null: the CPU. cached_texts: texts in the KV cache; 0: no cache.
  // capability: the GPU's compute capability times 10.
  ModelFixture(const Config& c, Recipe recipe, int64_t batch_, int64_t sequence_, int threads = 2,
               int32_t mask_id = -1, gpu::Context* gpu = nullptr, int64_t cached_texts = 0,
               int capability = 90)
      : config(c), batch(batch_), sequence(sequence_) {
    model = make_decoder(c.model, recipe,
                         {.micro_batch = batch,
                          .sequence = sequence,
                          .mask_id = mask_id,
                          .backend = gpu ? Backend::kGpu : Backend::kCpu,
                          .precision = c.precision,
                          .state = c.optimizer.state,
                          .capability = capability});
    optimizer = std::make_unique<Optimizer>(c.optimizer, *model, 1);
    on.threads = threads;
    on.gpu = gpu;
    model->plan(plan);
    if (cached_texts > 0) model->plan_cache(plan, cached_texts);
    optimizer->plan(plan);
    plan.add(Section::kScratch, "workspace", on.workspace, {model->workspace_bytes()});
    plan.add(Section::kHostVisible, "nats", nats, {batch * sequence});
    plan.allocate(gpu);
    model->bind(on);
    optimizer->bind();
    model->initialise(on, 1);
    model->refresh_weights(on);
    RandomSequence random({11, stream_id("tokens"), 0});
    for (int64_t i = 0; i <= batch * sequence; ++i) {
      token.push_back(int32_t(random.below(uint32_t(c.model.vocab_size))));
    }
    target.assign(token.begin() + 1, token.end());
    token.pop_back();
  }

  // Sequences [begin, begin + count).
  TokenBatch micro(int64_t begin, int64_t count) const {
    const int64_t first = begin * sequence, n = count * sequence;
    return {.token = {token.data() + first, {n}},
            .target = {target.data() + first, {n}},
            .batch = count,
            .sequence = sequence};
  }
  TokenBatch all() const { return micro(0, batch); }

  // Copies what the host reads of the model and the optimizer to the host, and waits.
  void read_back() {
    model->read_back(on);
    optimizer->read_back(on);
    wait(on);
  }
  // Computes the gradients of the mean loss over all targets; the model's loss_sum() is then valid.
  void gradients(int64_t micro_batches = 1) {
    model->begin_step(on, {.loss = 1.0f / float(batch * sequence),
                           .micro_share = 1.0f / float(micro_batches),
                           .first_micro = first_micro,
                           .sample = sampled});
    for (int64_t m = 0; m < micro_batches; ++m) {
      model->forward_backward(on, micro(m * batch / micro_batches, batch / micro_batches));
    }
    read_back();
  }
  // Runs a full optimizer step and returns the mean loss before it.
  double step(int64_t index, int64_t micro_batches = 1,
              Optimizer::Sample sample = Optimizer::Sample::kNothing) {
    first_micro = index * micro_batches;
    gradients(micro_batches);
    const double loss = model->loss_sum() / double(batch * sequence);
    optimizer->step(on, index, 1.0, sample);
    model->update_router_bias(on, 1.0f);
    read_back();
    return loss;
  }
  // The values of `view`, from host or device memory.
  template <typename T>
  std::vector<T> values(const View<T, 1>& view) const {
    std::vector<T> host(static_cast<size_t>(view.size()));
    copy_bytes(on, host.data(), view.data, view.bytes());
    wait(on);
    return host;
  }
  std::vector<std::byte> parameter_bytes() const {
    std::vector<std::byte> bytes;
    for (const TensorRef& t : model->tensors()) {
      const size_t begin = bytes.size();
      bytes.resize(begin + static_cast<size_t>(t.bytes()));
      copy_bytes(on, bytes.data() + begin, t.data, static_cast<size_t>(t.bytes()));
    }
    wait(on);
    return bytes;
  }
};

// A model small enough for the scalar reference: dense, two layers.
inline Config small_config() {
  Config c;
  c.model.hidden = 32;
  c.model.layers = 2;
  c.model.heads = 1;
  c.model.ffn = 24;
  c.model.vocab_size = 17;
  return c;
}

}  // namespace assay
