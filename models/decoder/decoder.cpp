#include "models/decoder/decoder.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "comm/agree.h"
#include "cuda/matmul.h"
#include "cuda/transfer.h"
#include "models/decoder/decoder_impl.h"
#include "models/parameters/table.h"
#include "ops/embedding.h"
#include "ops/head_loss.h"
#include "ops/linear.h"
#include "ops/rope.h"
#include "ops/zero.h"

namespace assay {

namespace {

// Whether the first micro-batch of a part stores gradients that need not be zeroed then.
bool first_stores(Exec on) {
  return on.gpu == nullptr || !on.gpu->predecessors.has(gpu::Predecessor::kGradientZeros);
}

// Size of the host's ring of micro-batch counters: the host waits each time the ring is full.
constexpr int64_t kDraws = 1024;

PrecisionTable table_for(const ModelConfig& config, const DecoderOptions& options) {
  PrecisionTable table = precision_table(options.precision, config);
  require_whole_blocks(table, config);
  const bool native = options.precision.products == ProductsMode::kNative &&
                      options.purpose == Purpose::kTraining &&
                      native_problem(table, config, options.sequence).empty();
  if (native && options.backend == Backend::kGpu) table.native_capability = options.capability;
  return table;
}

}  // namespace

template <typename T>
Decoder<T>::Decoder(const ModelConfig& config, const DecoderOptions& options)
    : config_(config),
      options_(options),
      precision_(table_for(config, options)),
      largest_{options.micro_batch, options.sequence},
      store_(parameter_table(config, options.layout), options.backend, options.state),
      sharing_{.layout = options.layout, .groups = options.ranks, .backend = options.backend} {
  CHECK(!sharing_.on() || training(), "decoder: experts on %d ranks", options.layout.expert_ranks);
  const BlockParts<T> parts{config_, precision_, scratch_, cache_, largest_.batch, training()};
  for (int64_t l = 0; l < config.layers; ++l) {
    sublayers_.push_back(make_attention_sublayer<T>(parts, l, cos_, sin_));
    if (is_moe_block(config, l)) {
      auto sublayer = std::make_unique<MoeSublayer<T>>(parts, l, sharing_);
      moe_sublayers_.push_back(sublayer.get());
      sublayers_.push_back(std::move(sublayer));
    } else {
      sublayers_.push_back(make_dense_sublayer<T>(parts, l));
    }
  }
  for (const auto& sublayer : sublayers_) {
    for (QuantisedProducts* products : sublayer->quantised()) {
      store_.leave_out(products->site().weight);
      products->number_operands(uint32_t(quantised_.size()) * QuantisedProducts::kOperands);
      quantised_.push_back(products);
    }
  }
  std::vector<std::string> stored{head_name()};
  for (const auto& sublayer : sublayers_) sublayer->name_stored_gradients(stored);
  stored_gradients_ = {stored.begin(), stored.end()};
  scratch_.quant.seed = options.seed;
  streams_.resize(sublayers_.size() + 1);
  router_layers_.resize(moe_sublayers_.size());
}

template <typename T>
void Decoder<T>::plan(MemoryPlan& plan) {
  const int64_t tokens = largest_.tokens();
  store_.plan(plan, options_.purpose);
  for (QuantisedProducts* products : quantised_) {
    products->plan(plan, store_.spec(products->site().weight), options_.backend);
  }
  if (sharing_.on()) {
    sharing_.plan(plan, config_, tokens * config_.moe->top_k, options_.expert_rows);
  }
  plan_sublayers(plan);
  final_norm_.plan(plan, "final.norm", config_, tokens);
  scratch_.plan(plan, config_, largest_, options_.purpose, options_.backend, sharing_.rows);
  if (!quantised_.empty()) {
    scratch_.quant.plan(plan, config_, tokens);
    const auto asks = [](const QuantisedProducts* p) {
      return p->needs_input_amax() || p->needs_gradient_amax();
    };
    if (std::any_of(quantised_.begin(), quantised_.end(), asks)) {
      plan.add(Section::kScratch, "quantised.known_amax", scratch_.quant.known_amax,
               {int64_t(sublayers_.size()), kSublayerTensors});
    }
    if (precision_.native_capability > 0) scratch_.quant.coded.plan(plan, config_, tokens);
    plan.add(Section::kHostVisible, "quantised.draw", host_draws_, {kDraws});
    plan.add(Section::kHostVisible, "quantised.not_finite", read_not_finite_, {1});
  }
  const auto head_scratch_bytes =
      training() ? head_loss_scratch_bytes<T> : head_loss_eval_scratch_bytes<T>;
  const int64_t head_bytes = head_scratch_bytes(options_.backend, tokens, config_.vocab_size);
  plan.add(Section::kScratch, "head", head_scratch_, {head_bytes});
  plan.add(Section::kScratch, "loss_sum", loss_sum_, {1});
  plan.add(Section::kScratch, "eval_sum", eval_sum_, {1});
  plan.add(Section::kScratch, "loss_scale", loss_scale_, {1});
  plan.add(Section::kHostVisible, "loss_sum", read_loss_sum_, {options_.layout.parts});
  plan.add(Section::kHostVisible, "loss_scale", host_scale_, {1});
  if (options_.backend == Backend::kGpu) {
    plan.add(Section::kScratch, "batch.token", token_, {tokens});
    plan.add(Section::kScratch, "batch.target", target_, {tokens});
    plan.add(Section::kScratch, "nats", nats_, {tokens});
    plan.add(Section::kScratch, "text.position", position_, {tokens});
    plan.add(Section::kScratch, "text.row", row_, {tokens});
    plan.add(Section::kScratch, "text.kept", kept_, {tokens});
    plan.add(Section::kScratch, "text.segment", segment_, {tokens});
    plan.add(Section::kScratch, "text.last_segment", last_segment_, {tokens});
    plan.add(Section::kScratch, "most_likely", most_likely_, {tokens});
  }
  const int64_t half_width = config_.resolved_head_dim() / 2;
  plan.add(Section::kParameters, "rope.cos", cos_, {largest_.sequence, half_width});
  plan.add(Section::kParameters, "rope.sin", sin_, {largest_.sequence, half_width});
}

template <typename T>
void Decoder<T>::plan_sublayers(MemoryPlan& plan) {
  const int64_t tokens = largest_.tokens();
  if (training()) {
    for (const auto& sublayer : sublayers_) sublayer->plan(plan, tokens);
    return;
  }
  // Sharing is safe: a sublayer reads only the stream of the previous one, which is of another kind
  // because attention and feed-forward alternate.
  struct Planned {
    size_t begin = 0, end = 0;  // of plan.entries()
  };
  std::map<SublayerKind, Planned> first;
  for (const auto& sublayer : sublayers_) {
    const size_t begin = plan.entries().size();
    if (first.count(sublayer->kind()) == 0) {
      sublayer->plan(plan, tokens);
      first[sublayer->kind()] = {begin, plan.entries().size()};
      continue;
    }
    MemoryPlan alone;  // never allocated
    sublayer->plan(alone, tokens);
    const Planned& same = first[sublayer->kind()];
    CHECK(alone.entries().size() == same.end - same.begin,
          "decoder: sublayers of one kind plan %zu and %zu buffers", alone.entries().size(),
          same.end - same.begin);
    for (size_t i = 0; i < alone.entries().size(); ++i) {
      const MemoryPlan::Entry &entry = alone.entries()[i], &of = plan.entries()[same.begin + i];
      CHECK(entry.bytes == of.bytes, "decoder: %s has %zu bytes, %s %zu", entry.name.c_str(),
            entry.bytes, of.name.c_str(), of.bytes);
      aliases_.push_back({entry.address, of.address});
    }
  }
}

template <typename T>
void Decoder<T>::bind(Exec on) {
  for (const Alias& alias : aliases_) *alias.address = *alias.of;
  if (sharing_.on()) sharing_.tree->bind(sharing_.weight_gradient);
  for (const auto& sublayer : sublayers_) sublayer->bind(store_);
  quantised_states_.clear();
  for (QuantisedProducts* products : quantised_) {
    products->weights().bind(on, store_.master(products->site().weight));
    for (QuantisedOperandState& state : products->states()) quantised_states_.push_back(state);
  }
  if (!quantised_.empty()) {
    zero(on, scratch_.quant.not_finite);
    read_not_finite_[0] = 0;
  }
  final_norm_.bind(store_, "final.norm");
  embedding_ = store_.plain("embed.weight");
  dembedding_ = store_.matrix_gradient("embed.weight");
  head_ = store_.matrix(head_name());
  dhead_ = store_.matrix_gradient(head_name());
  if (options_.backend == Backend::kCpu) return rope_table(cos_, sin_, config_.rope_theta);
  std::vector<float> table(static_cast<size_t>(2 * cos_.size()));
  const View<float, 2> cos{table.data(), {cos_.dim[0], cos_.dim[1]}};
  const View<float, 2> sin{table.data() + cos.size(), {cos_.dim[0], cos_.dim[1]}};
  rope_table(cos, sin, config_.rope_theta);
  copy(on, cos_, cos);
  copy(on, sin_, sin);
  wait(on);
}

template <typename T>
int64_t Decoder<T>::workspace_bytes() const {
  const int64_t tokens = largest_.tokens();
  const Backend backend = options_.backend;
  const int64_t head_rows = head_loss_chunk_rows(tokens);
  int64_t bytes = std::max(linear_workspace_bytes<T>(backend, head_rows, config_.hidden),
                           embedding_backward_workspace_bytes(backend, tokens, config_.hidden));
  for (const auto& sublayer : sublayers_) {
    bytes = std::max(bytes, sublayer->workspace_bytes(backend, tokens));
  }
  if (backend == Backend::kGpu) bytes = std::max(bytes, options_.product_workspace);
  return bytes;
}

template <typename T>
void Decoder<T>::refresh_weights(Exec on) {
  store_.refresh(on);
  refresh_quantised(on);
}

template <typename T>
void Decoder<T>::refresh_quantised(Exec on) {
  for (QuantisedProducts* products : quantised_) products->refresh_weights(on, quant_pass());
  evaluation_ready_ = precision_.native_capability == 0 || state_.sampled();
}

template <typename T>
void Decoder<T>::repack_weights(Exec on) {
  store_.repack(on);
  refresh_quantised(on);
}

template <typename T>
void Decoder<T>::enter(Exec on, PrecisionPhase phase) {
  if (state_.phase == phase) return;
  state_.phase = phase;
  refresh_quantised(on);
}

template <typename T>
void Decoder<T>::begin_step(Exec on, const MicroScale& scale) {
  CHECK(training(), "decoder: planned for %s", "inference");
  scale_ = scale;
  host_scale_[0] = scale.loss;
  copy(on, loss_scale_, host_scale_);
  micro_ = 0;
  state_.sample = scale.sample;
  if (scale.sample == MicroScale::Sample::kFormats) {
    for (const QuantisedProducts* products : quantised_) {
      products->begin_measures(on, quant_pass());
    }
  }
  part_ = options_.layout.first_part();
  begin_gradients(on);
  for (MoeSublayer<T>* sublayer : moe_sublayers_) sublayer->begin_step(on);
  zero(on, loss_sum_);
}

template <typename T>
void Decoder<T>::next_part(Exec on) {
  const Layout& layout = options_.layout;
  CHECK(part_ + 1 < layout.first_part() + layout.local_parts(), "decoder: part %ld of %ld",
        long(part_ + 1), long(layout.parts));
  copy(on, read_loss_sum_.rows(part_, 1), loss_sum_);
  for (MoeSublayer<T>* sublayer : moe_sublayers_) sublayer->next_part(on);
  part_ += 1;
  begin_gradients(on);
  zero(on, loss_sum_);
}

template <typename T>
void Decoder<T>::begin_gradients(Exec on) {
  static const std::set<std::string> none;
  store_.zero_gradients(on, first_stores(on) ? stored_gradients_ : none);
  first_of_part_ = true;
}

template <typename T>
double Decoder<T>::loss_sum() const {
  double sum = 0;
  for (int64_t part = 0; part < read_parts_; ++part) sum += read_loss_sum_[part];
  return sum;
}

template <typename T>
TokenBatch Decoder<T>::uploaded(Exec on, const TokenBatch& batch) const {
  if (options_.backend == Backend::kCpu) return batch;
  const int64_t n = batch.token.dim[0];
  CHECK(n <= token_.dim[0], "decoder: %ld tokens, planned for %ld", long(n), long(token_.dim[0]));
  for (int64_t i = 0; i < n; ++i) {
    CHECK(batch.token[i] >= 0 && batch.token[i] < config_.vocab_size &&
              batch.target[i] < config_.vocab_size,
          "decoder: token[%ld] = %d, target %d, vocabulary %ld", long(i), int(batch.token[i]),
          int(batch.target[i]), long(config_.vocab_size));
  }
  copy(on, token_, batch.token);
  copy(on, target_, batch.target);
  return {.token = token_.rows(0, n),
          .target = target_.rows(0, n),
          .batch = batch.batch,
          .sequence = batch.sequence};
}

template <typename T>
void Decoder<T>::read_back(Exec on) {
  copy(on, read_loss_sum_.rows(part_, 1), loss_sum_);
  read_parts_ = part_ + 1;
  for (MoeSublayer<T>* sublayer : moe_sublayers_) sublayer->read_back(on);
  if (!quantised_.empty()) {
    copy(on, read_not_finite_, scratch_.quant.not_finite);
    zero(on, scratch_.quant.not_finite);
  }
  measures_read_ = state_.sampled();
  if (!measures_read_) return;
  for (const QuantisedProducts* products : quantised_) products->read_measures(on);
  state_.sample = MicroScale::Sample::kNothing;  // not measured: evaluations
}

template <typename T>
void Decoder<T>::sum_counts(Exec on, Group& ranks) {
  for (MoeSublayer<T>* sublayer : moe_sublayers_) sublayer->sum_counts(on, ranks);
}

template <typename T>
void Decoder<T>::gather_results(Group& ranks) {
  gather_rows(ranks, options_.layout, read_loss_sum_);
  read_parts_ = options_.layout.parts;
  for (MoeSublayer<T>* sublayer : moe_sublayers_) sublayer->gather_results(ranks);
  if (quantised_.empty()) return;
  std::vector<uint32_t> marks(size_t(ranks.size()));
  ranks.all_gather({}, marks.data(), read_not_finite_.data, sizeof(uint32_t));
  for (const uint32_t mark : marks) {
    uint32_t& first = read_not_finite_[0];
    if (mark != 0 && (first == 0 || mark < first)) first = mark;
  }
  if (!measures_read_) return;
  for (const QuantisedProducts* products : quantised_) products->add_measures(ranks);
}

template <typename T>
void Decoder<T>::forward(Exec on, const TokenBatch& batch, Pass pass) {
  const BatchShape shape{batch.batch, batch.sequence};
  const int64_t n = shape.tokens();
  CHECK(shape.batch <= largest_.batch && shape.sequence <= largest_.sequence &&
            batch.token.dim[0] == n,
        "decoder: %ld sequences of %ld positions, %ld tokens; planned for %ld x %ld",
        long(shape.batch), long(shape.sequence), long(batch.token.dim[0]), long(largest_.batch),
        long(largest_.sequence));
  forward(on, batch.token, shape, pass);
}

template <typename T>
void Decoder<T>::forward(Exec on, View<const int32_t, 1> token, BatchShape shape, Pass pass) {
  const int64_t n = shape.tokens();
  state_.training = pass == Pass::kTrain;
  if (pass == Pass::kEvaluate && !quantised_.empty()) zero(on, scratch_.quant.draw);
  if (pass == Pass::kEvaluate && !evaluation_ready_) {
    for (QuantisedProducts* products : quantised_) {
      products->refresh_for_evaluation(on, quant_pass());
    }
    evaluation_ready_ = true;
  }
  if (!scratch_.quant.known_amax.empty()) zero(on, scratch_.quant.known_amax);
  const View<T, 2> embedded = sublayers_.front()->norm().resid;
  embedding_forward<T>(on, {.y = embedded.rows(0, n),
                            .weight = embedding_,
                            .token = token,
                            .gain = static_cast<float>(config_.embed_gain)});
  streams_[0] = {.resid = embedded};
  for (size_t i = 0; i < sublayers_.size(); ++i) {
    const bool last = i + 1 == sublayers_.size();
    const View<T, 2> after = last ? final_norm_.resid : sublayers_[i + 1]->norm().resid;
    streams_[i + 1] = sublayers_[i]->forward(on, state_, streams_[i], after, shape, pass);
    if (i + 2 == sublayers_.size()) shape = shape.after_attention();
  }
  final_norm_.forward(on, streams_.back(), shape.tokens());
}

template <typename T>
void Decoder<T>::backward(Exec on, const TokenBatch& batch) {
  const BatchShape shape{batch.batch, batch.sequence};
  const int64_t n = shape.tokens();
  const View<T, 2> dresid = scratch_.dresid.rows(0, n);
  zero(on, dresid);
  final_norm_.backward(on, scratch_, streams_.back(), n);
  for (size_t i = sublayers_.size(); i-- > 0;) {
    sublayers_[i]->backward(on, state_, streams_[i], shape, scale_);
  }
  embedding_backward<T>(on, {.dweight = dembedding_,
                             .dy = dresid,
                             .token = batch.token,
                             .gain = static_cast<float>(config_.embed_gain)});
}

template <typename T>
void Decoder<T>::forward_backward(Exec on, const TokenBatch& from_host) {
  const TokenBatch batch = uploaded(on, from_host);
  const Key key{.workspace = on.workspace.data,
                .batch = batch.batch,
                .sequence = batch.sequence,
                .micro_share = scale_.micro_share,
                .phase = state_.phase,
                .sample = state_.sample};
  count_draw(on);
  const bool stores = first_of_part_ && first_stores(on);
  state_.gradients = stores ? GradientSum::kStore : GradientSum::kAdd;
  first_of_part_ = false;
  // An exchange of rows waits for their numbers, so with shared experts nothing is recorded.
  const auto calls = [&] { queue_micro_batch(on, batch); };
  if (sharing_.on()) {
    calls();
  } else {
    (stores ? first_micro_batch_ : micro_batch_).run(on, key, calls);
  }
  for (MoeSublayer<T>* sublayer : moe_sublayers_) sublayer->count_micro_batch(batch.token.dim[0]);
}

template <typename T>
void Decoder<T>::count_draw(Exec on) {
  const int64_t at = micro_++ % kDraws;
  if (quantised_.empty()) return;
  if (at == 0 && micro_ > 1) wait(on);  // pending copies may still read the ring's entries
  host_draws_[at] = uint32_t(scale_.first_micro + micro_ - 1);
  copy(on, scratch_.quant.draw, host_draws_.rows(at, 1));
}

template <typename T>
void Decoder<T>::queue_micro_batch(Exec on, const TokenBatch& batch) {
  const int64_t n = batch.token.dim[0];
  forward(on, batch, Pass::kTrain);
  head_loss<T>(on, {.dx = scratch_.dnorm.rows(0, n),
                    .loss_sum = loss_sum_,
                    .dweight = dhead_,
                    .scratch = head_scratch_,
                    .x = hidden(n),
                    .weight = head_,
                    .target = batch.target,
                    .grad_scale = loss_scale_,
                    .mask_id = options_.mask_id,
                    .logit_gain = static_cast<float>(config_.logit_gain),
                    .sum = state_.gradients});
  backward(on, batch);
}

template <typename T>
void Decoder<T>::evaluate(Exec on, const TokenBatch& from_host, View<float, 1> nats) {
  const TokenBatch batch = uploaded(on, from_host);
  const bool gpu = options_.backend == Backend::kGpu;
  const View<float, 1> out = gpu ? nats_.rows(0, batch.token.dim[0]) : nats;
  forward(on, batch, Pass::kEvaluate);
  zero(on, eval_sum_);
  head_loss_eval<T>(on, {.nats = out,
                         .loss_sum = eval_sum_,
                         .scratch = head_scratch_,
                         .x = hidden(batch.token.dim[0]),
                         .weight = head_,
                         .target = batch.target,
                         .mask_id = options_.mask_id,
                         .logit_gain = static_cast<float>(config_.logit_gain)});
  if (gpu) copy(on, nats, out);
  wait(on);
}

template <typename T>
void Decoder<T>::update_router_bias(Exec on, float lr_fraction) {
  for (MoeSublayer<T>* sublayer : moe_sublayers_) sublayer->update_bias(on, lr_fraction);
}

template <typename T>
const std::vector<RouterLayerState>& Decoder<T>::router_layers() {
  for (size_t i = 0; i < moe_sublayers_.size(); ++i) router_layers_[i] = moe_sublayers_[i]->state();
  return router_layers_;
}

template <typename T>
NotFiniteOperand Decoder<T>::not_finite_operand() const {
  const uint32_t mark = quantised_.empty() ? 0 : read_not_finite_[0];
  if (mark == 0) return {};
  const auto found =
      std::find_if(quantised_states_.begin(), quantised_states_.end(),
                   [&](const QuantisedOperandState& s) { return s.site == mark / 2; });
  CHECK(found != quantised_states_.end(), "decoder: no operand has site %u", mark / 2);
  return {.operand = &*found, .amax = mark % 2 == 1 ? std::nanf("") : INFINITY};
}

template <typename T>
void Decoder<T>::route(Exec on, const TokenBatch& batch, View<int32_t, 2> expert) {
  if (moe_sublayers_.empty()) return;
  forward(on, uploaded(on, batch), Pass::kEvaluate);
  for (size_t i = 0; i < moe_sublayers_.size(); ++i) {
    const View<const int32_t, 2> chosen = moe_sublayers_[i]->chosen(batch.token.dim[0]);
    CHECK(expert.dim[0] == int64_t(moe_sublayers_.size()) && expert.dim[1] == chosen.size(),
          "route: expert (%ld, %ld) for %zu layers of %ld choices", long(expert.dim[0]),
          long(expert.dim[1]), moe_sublayers_.size(), long(chosen.size()));
    copy_bytes(on, expert.row(int64_t(i)), chosen.data, chosen.bytes());
  }
  // Operands that are not finite here do not belong to a training step.
  if (!quantised_.empty()) zero(on, scratch_.quant.not_finite);
  wait(on);
}

template class Decoder<float>;
template class Decoder<bf16>;

std::unique_ptr<Model> make_decoder(const ModelConfig& config, Recipe recipe,
                                    const DecoderOptions& options) {
  if (recipe == Recipe::kFp32 && options.state == StateFormat::kBf16) {
    throw UserError("optimizer.state is bf16, but precision.recipe " + options.precision.recipe +
                        " is fp32 here, without bf16 weights",
                    "choose precision.recipe: bf16; only a new run can take optimizer.state: fp32 "
                    "instead");
  }
  if (recipe == Recipe::kBf16) return std::make_unique<Decoder<bf16>>(config, options);
  return std::make_unique<Decoder<float>>(config, options);
}

}  // namespace assay
