#include "session/tune.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <utility>

#include "base/check.h"
#include "base/median.h"
#include "base/random.h"
#include "base/seconds_since.h"
#include "cuda/context.h"
#include "cuda/product_library.h"
#include "cuda/transfer.h"
#include "models/decoder/training_memory.h"

namespace assay {

namespace {

using gpu::ProductAlgorithm;
using gpu::ProductChoices;
using gpu::ProductKey;
using gpu::ProductOperands;
using gpu::ProductProposal;
using gpu::ProductRun;
using Clock = std::chrono::steady_clock;

// Calls between two events: enough that the gap before the first does not count, few enough that a
// round is short.
constexpr size_t kLeastCalls = 4, kMostCalls = 12;
constexpr double kWorthwhile = 0.99;

// A mark on a stream.
class Mark {
 public:
  explicit Mark(const gpu::Context& on) : on_(on), event_(on.events->make()) {}
  ~Mark() { on_.events->release(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;
  void record() { on_.events->record(on_, event_); }
  double seconds_until(const Mark& later) const {
    return on_.events->seconds(event_, later.event_);
  }

 private:
  const gpu::Context& on_;
  void* event_;
};

// A model with the memory of its training, and the calls of its products.
class TunedModel {
 public:
  TunedModel(const Session& session, int64_t workspace_bytes)
      : config_(session.config),
        place_(place_of(session, workspace_bytes)),
        memory_(config_, session.recipe, place_),
        on_(session.exec()) {
    usual_workspace_ = usual_workspace(session);
    memory_.plan.add(Section::kData, "tokens", tokens_, {batch_tokens() + 1});
    memory_.plan.add(Section::kScratch, "factors", factors_, {2, 64});
    memory_.allocate(config_, session.recipe, on_.gpu);
    memory_.bind(on_);
    memory_.model->initialise(on_, 1);
    memory_.model->refresh_weights(on_);
    RandomSequence random({7, stream_id("tune"), 0});
    for (int64_t i = 0; i <= batch_tokens(); ++i) {
      tokens_[i] = int32_t(random.below(uint32_t(config_.model.vocab_size)));
    }
    // Factors of a call are in memory that later calls have used: (1, 0) and (1, 1) in their place.
    std::vector<float> rows(static_cast<size_t>(factors_.size()));
    rows[0] = rows[64] = rows[65] = 1;
    copy(on_, factors_, View<float, 2>{rows.data(), {2, 64}});
    wait(on_);
  }

  // Those of the first micro-batch of a step, which stores gradients, and of another, which adds to
  // them. `usual` is the one that a step has more of.
  struct OfMicroBatches {
    ProductChoices::Calls usual, other;
  };
  OfMicroBatches calls_of_micro_batches() {
    memory_.model->begin_step(on_, {.loss = 1.0f / float(batch_tokens())});
    ProductChoices::Calls first = calls([&] { memory_.model->forward_backward(on_, batch()); });
    ProductChoices::Calls adding = calls([&] { memory_.model->forward_backward(on_, batch()); });
    // The first of each part stores.
    const int64_t of_part = config_.run.batch_tokens / config_.parallel.batch_parts();
    return of_part == batch_tokens() ? OfMicroBatches{std::move(first), std::move(adding)}
                                     : OfMicroBatches{std::move(adding), std::move(first)};
  }
  ProductChoices::Calls calls_of_evaluation() {
    std::vector<float> nats(static_cast<size_t>(batch_tokens()));
    return calls([&] {
      memory_.model->evaluate(on_, batch(), View<float, 1>{nats.data(), {batch_tokens()}});
    });
  }

  // Where a call is repeated, with the workspace that it had.
  Exec at(const ProductOperands& call) const {
    Exec on = on_;
    on.workspace = call.workspace;
    return on;
  }
  // The same with the workspace that it has in a run without a tune file.
  Exec usually_at(const ProductOperands& call) const {
    Exec on = at(call);
    const int64_t taken = memory_.workspace.dim[0] - call.workspace.dim[0];
    on.workspace = on.workspace.rows(0, std::min(on.workspace.dim[0], usual_workspace_ - taken));
    return on;
  }
  ProductOperands repeated(ProductOperands call) const {
    if (call.factors) call.factors = factors_.row(call.c ? 1 : 0);
    return call;
  }
  int64_t workspace_bytes() const { return memory_.workspace.dim[0]; }

 private:
  static ModelPlace place_of(const Session& session, int64_t workspace_bytes) {
    ModelPlace place = session.place();
    place.product_workspace = workspace_bytes;
    return place;
  }
  int64_t usual_workspace(const Session& session) const {
    const TrainingMemory usual(config_, session.recipe, place_of(session, 0));
    return usual.model->workspace_bytes();
  }
  template <typename Work>
  ProductChoices::Calls calls(const Work& work) {
    on_.gpu->products->begin_calls();
    work();
    wait(on_);
    return on_.gpu->products->end_calls();
  }
  int64_t batch_tokens() const { return config_.run.micro_batch * config_.run.sequence; }
  TokenBatch batch() const {
    return {.token = tokens_.rows(0, batch_tokens()),
            .target = tokens_.rows(1, batch_tokens()),
            .batch = config_.run.micro_batch,
            .sequence = config_.run.sequence};
  }

  const Config& config_;
  const ModelPlace place_;
  TrainingMemory memory_;
  Exec on_;
  int64_t usual_workspace_ = 0;
  View<int32_t, 1> tokens_;
  View<float, 2> factors_;  // (2, 64): a row is as aligned as the library wants
};

// The proposals of one product in turn: what heats or slows the card falls on all of them.
class ProductTimer {
 public:
  ProductTimer(const TunedModel& model, const ProductKey& key,
               const std::vector<ProductOperands>& calls, const TuneOptions& options)
      : model_(model), calls_(calls), options_(options) {
    const gpu::ProductLibrary& library = *gpu::product_library();
    const ProductOperands& call = calls.front();
    const Exec usual = model.usually_at(call), on = model.at(call);
    gpu::PreparedProduct first = library.first(usual, key, call);
    add(first.by, std::move(first.run));
    // With more workspace the library may propose others first.
    std::vector<ProductProposal> all = library.proposals(usual, key, call, 1);
    for (const ProductProposal& p : library.proposals(on, key, call, options.proposals)) {
      const bool known = std::any_of(all.begin(), all.end(), [&](const ProductProposal& other) {
        return other.algorithm == p.algorithm;
      });
      if (!known) all.push_back(p);
    }
    for (const ProductProposal& p : all) add(p, library.prepare(on, key, call, p.algorithm));
    for (size_t i = 0; i <= runs_.size(); ++i) marks_.push_back(std::make_unique<Mark>(*on.gpu));
  }

  // False if it was stopped.
  bool measure(const std::function<bool()>& stop_requested) {
    const auto begin = Clock::now();
    const size_t runs = std::max(kMostCalls, runs_.size());  // each at least once: it is loaded
    do {
      if (stop_requested && stop_requested()) return false;
      for (size_t i = 0; i < runs; ++i) run(i % runs_.size());
      wait(model_.at(calls_.front()));
    } while (seconds_since(begin) < options_.heat_s);
    for (int r = 0; r < options_.rounds; ++r) {
      if (stop_requested && stop_requested()) return false;
      round(size_t(r));
    }
    return true;
  }
  const std::vector<TimedProposal>& timed() const { return timed_; }

 private:
  void add(const ProductProposal& proposal, ProductRun run) {
    timed_.push_back({proposal, {}});
    runs_.push_back(std::move(run));
  }
  // Begins with another proposal each time. The host is ahead of the device within a round.
  void round(size_t number) {
    const size_t calls = std::clamp(calls_.size(), kLeastCalls, kMostCalls), n = runs_.size();
    for (size_t i = 0; i < n; ++i) {
      marks_[i]->record();
      for (size_t c = 0; c < calls; ++c) run((number + i) % n);
    }
    marks_[n]->record();
    wait(model_.at(calls_.front()));
    for (size_t i = 0; i < n; ++i) {
      const double seconds = marks_[i]->seconds_until(*marks_[i + 1]);
      timed_[(number + i) % n].us.push_back(1e6 * seconds / double(calls));
    }
  }
  // The next call, in the memory of another layer than the last one's.
  void run(size_t proposal) {
    const ProductOperands& call = calls_[next_++ % calls_.size()];
    runs_[proposal](model_.at(call), model_.repeated(call));
  }

  const TunedModel& model_;
  const std::vector<ProductOperands>& calls_;
  const TuneOptions& options_;
  std::vector<TimedProposal> timed_;
  std::vector<ProductRun> runs_;
  std::vector<std::unique_ptr<Mark>> marks_;
  size_t next_ = 0;
};

KeptProduct kept(const ProductKey& key, const std::vector<TimedProposal>& timed, size_t which,
                 int64_t calls) {
  const TimedProposal &first = timed.front(), &best = timed[which];
  return {.key = key,
          .choice = {best.proposal.algorithm, gpu::ChosenBy::kTuning},
          .workspace_bytes = best.proposal.workspace_bytes,
          .timing = KeptProduct::Timing{.calls = calls,
                                        .proposals = int64_t(timed.size()) - 1,
                                        .us = best.median_us(),
                                        .first = first.proposal.algorithm,
                                        .first_us = first.median_us()}};
}

}  // namespace

double TimedProposal::median_us() const {
  return median(us);
}

std::optional<size_t> to_keep(const std::vector<TimedProposal>& timed) {
  const double first_us = timed[0].median_us();
  std::optional<size_t> best, same;
  for (size_t i = 1; i < timed.size(); ++i) {
    if (!best || timed[i].median_us() < timed[*best].median_us()) best = i;
    if (timed[i].proposal.algorithm == timed[0].proposal.algorithm) same = i;
  }
  if (best && timed[*best].median_us() < kWorthwhile * first_us) return best;
  if (same && kWorthwhile * timed[*same].median_us() <= first_us) return same;
  return std::nullopt;
}

std::optional<TuneFile> tune(const Session& session, const TuneOptions& options,
                             const TuneWatch& watch) {
  const std::optional<ProductsDevice> device = products_device(session.device);
  if (!device) {
    throw UserError("dense products on " + session.device.name() + " have one way only",
                    "tuning is for a GPU, whose cuBLASLt has several: --device cuda");
  }
  TunedModel model(session, options.workspace_bytes);
  const TunedModel::OfMicroBatches trained = model.calls_of_micro_batches();
  ProductChoices::Calls all = model.calls_of_evaluation();
  for (const auto& [key, calls] : trained.other) all[key] = calls;
  for (const auto& [key, calls] : trained.usual) all[key] = calls;
  TuneFile file{.device = *device,
                .workspace_bytes = model.workspace_bytes(),
                .date = "",
                .commit = "",
                .model = "",
                .rounds = options.rounds,
                .left_out = 0,
                .products = {}};
  const auto begin = Clock::now();
  size_t done = 0;
  for (const auto& [key, calls] : all) {
    ProductTimer timer(model, key, calls, options);
    if (!timer.measure(watch.stop_requested)) return std::nullopt;
    ++done;
    const std::optional<size_t> which = to_keep(timer.timed());
    if (which) {
      const auto found = trained.usual.find(key);
      const auto number = found == trained.usual.end() ? 0 : int64_t(found->second.size());
      file.products.push_back(kept(key, timer.timed(), *which, number));
    }
    file.left_out += which ? 0 : 1;
    if (!watch.on_product) continue;
    const double left = seconds_since(begin) / double(done) * double(all.size() - done);
    watch.on_product({done, all.size(), key, which ? &file.products.back() : nullptr, left});
  }
  return file;
}

}  // namespace assay
