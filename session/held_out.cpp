#include "session/held_out.h"

#include "base/check.h"
#include "cuda/transfer.h"
#include "data/sha256.h"
#include "data/tokenizer_check.h"
#include "data/tokenizer_files.h"
#include "engine/run/checkpoint_files.h"

namespace assay {

namespace {

std::string bytes_of(View<const int32_t, 1> x) {
  return {reinterpret_cast<const char*>(x.data), x.bytes()};
}

CheckpointSource with_bias(CheckpointSource source, HeldOutOptions::Bias bias) {
  require_experts(source);
  RouterConfig& router = source.config.model.moe->router;
  // The rate is not used in an evaluation: only whether there is one.
  if (bias == HeldOutOptions::Bias::kAlways && !router.bias_rate.on()) router.bias_rate = 1;
  return source;
}

// With `files`, if there are any, in place of the run's own validation shards, which may be gone.
Config reading(Config config, const std::vector<std::string>& files) {
  if (!files.empty()) config.data.val = files;
  return config;
}

}  // namespace

void require_experts(const CheckpointSource& source) {
  if (moe_blocks(source.config.model) > 0) return;
  throw UserError(source.folder + " is a dense model: it has no experts and no router",
                  "give a run with MoE layers (model.moe)");
}

HeldOut::HeldOut(const std::string& run_or_checkpoint, const HeldOutOptions& options)
    : source_(with_bias(open_checkpoint(run_or_checkpoint), options.bias)), files_(options.files) {
  const Config& config = source_.config;
  for (int64_t i = config.model.moe->first_dense_layers; i < config.model.layers; ++i) {
    layers_.push_back(i);
  }
  const bool has_data = config.data.synth || !config.data.val.empty();
  if (!has_data && options.files.empty()) {
    throw UserError(source_.folder + " was trained without held-out text (data.val)",
                    "give shards: --shards FILE");
  }
  if (options.files.empty()) {
    const std::string other = "--shards FILE";
    data_ =
        data_of_checkpoint(source_, {.shards = other, .tokenizer = other, .moved_tokenizer = ""});
  } else {
    if (has_data) data_ = evaluation_data(reading(config, options.files));
    std::string own = own_tokenizer(source_);
    if (own.empty() && config.data.check_tokenizer) own = data_.tokenizer;
    if (!own.empty()) require_tokenizer_of_shards(read_tokenizer(own), own, options.files);
  }
  ValidationSet::Config set{.files = options.files.empty() ? data_.val : options.files,
                            .tokens = options.tokens > 0 ? options.tokens : config.eval.tokens,
                            .sequence = config.run.sequence,
                            .micro_batch = config.run.micro_batch,
                            .vocab_size = config.model.vocab_size};
  set_ = std::make_unique<ValidationSet>(set);
  if (options.files.empty()) unread_ = unread_sources(data_, tokens(), sequence());
  if (options.warn && !unread_.none()) {
    options.warn(unread_text(unread_, tokens()), to_read_all());
  }
  std::string text;
  for (int i = 0; i < set_->micro_batches(); ++i) {
    const Batch batch = set_->micro(i);
    text += bytes_of(batch.token) + bytes_of(batch.target);
  }
  text_sha256_ = sha256_hex(text);
  checkpoint_sha256_ = sha256_file(source_.folder + "/" + kCheckpointManifest);
  const int64_t rows = config.run.micro_batch * config.run.sequence;
  loaded_ = std::make_unique<LoadedModel>(
      source_, options.device, EvaluationSize{.positions = config.run.sequence, .rows = rows},
      data_.mask_id);
  loaded_->plan.add(Section::kHostVisible, "held-out nats", nats_, {rows});
  loaded_->allocate();
}

std::string HeldOut::run() const {
  return require_run_of(source_, "has its telemetry and what dissect measures");
}

std::string HeldOut::to_read_all() const {
  return assay::to_read_all(unread_, "--tokens ", "--shards FILE");
}

View<const float, 1> HeldOut::evaluate(int i, MoeProbe* probe) {
  const Batch batch = set_->micro(i);
  const int64_t n = batch.token.dim[0];
  loaded_->model->set_probe(probe);
  loaded_->model->evaluate(loaded_->on,
                           {.token = batch.token,
                            .target = batch.target,
                            .batch = n / sequence(),
                            .sequence = sequence()},
                           nats_.rows(0, n));
  loaded_->model->set_probe(nullptr);
  return nats_.rows(0, n);
}

View<float, 1> HeldOut::bias_view(int64_t layer) {
  const std::string name = "blocks." + std::to_string(layer) + ".moe.bias";
  for (const TensorRef& tensor : loaded_->model->tensors()) {
    if (tensor.name == name) return tensor.as<float, 1>();
  }
  throw UserError(strprintf("block %ld has no router", long(layer)), "choose a MoE layer");
}

std::vector<float> HeldOut::bias(int64_t layer) {
  const View<float, 1> from = bias_view(layer);
  std::vector<float> values(size_t(from.size()));
  copy(loaded_->on, View<float, 1>{values.data(), {from.dim[0]}}, from);
  wait(loaded_->on);
  return values;
}

void HeldOut::set_bias(int64_t layer, std::span<const float> bias) {
  const View<float, 1> to = bias_view(layer);
  CHECK(int64_t(bias.size()) == to.size(), "bias of %zu values for %ld experts", bias.size(),
        long(to.size()));
  copy(loaded_->on, to, View<const float, 1>{bias.data(), {to.dim[0]}});
  wait(loaded_->on);
}

}  // namespace assay
