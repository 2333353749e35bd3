// A checkpoint's model with held-out text, for experiments on it: the run's validation tokens, or
// those of other shards, in micro-batches of the run's shape.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "eval/validation.h"
#include "session/loaded_model.h"
#include "session/run_data.h"
#include "session/unread_sources.h"

namespace assay {

struct HeldOutOptions {
  std::string device = "auto";
  int64_t tokens = 0;              // rounded up to whole sequences; 0: eval.tokens of the run
  std::vector<std::string> files;  // shards to read instead of the run's; empty: the run's
  // kAlways: the router adds a bias also in a model that has none, so that set_bias() has an
  // effect. Without a bias the largest logits are chosen, with one of zeros the largest scores: the
  // same experts unless scores round to the same float.
  enum class Bias { kAsTrained, kAlways } bias = Bias::kAsTrained;
  // Called where the text has none of a source of the run's mixture or of a folder of its data.val;
  // not with `files`.
  std::function<void(const std::string& text, const std::string& hint)> warn = {};
};

// UserError if the checkpoint is of a dense model.
void require_experts(const CheckpointSource& source);

class HeldOut {
 public:
  // UserError: no checkpoint, a dense model, no held-out text or one in the tokens of another
  // tokenizer, not enough memory.
  HeldOut(const std::string& run_or_checkpoint, const HeldOutOptions& options);

  const CheckpointSource& source() const { return source_; }
  const Config& config() const { return source_.config; }
  // The folder of the run, as run_of(). UserError for a checkpoint in no run.
  std::string run() const;
  // Block indices of the MoE layers.
  const std::vector<int64_t>& layers() const { return layers_; }
  int64_t tokens() const { return set_->tokens(); }
  int64_t sequence() const { return source_.config.run.sequence; }
  int64_t sequences() const { return tokens() / sequence(); }
  int micro_batches() const { return set_->micro_batches(); }
  Batch micro(int i) const { return set_->micro(i); }
  // The shards that the options named; empty: the run's.
  const std::vector<std::string>& files() const { return files_; }
  // The held-out shards of each source of a mixture; empty without one.
  const std::vector<SourceShards>& sources() const { return data_.source_val; }
  // The sources of a mixture, and other folders of data.val, of which the text has none. Empty with
  // files of the options.
  const UnreadSources& unread() const { return unread_; }
  std::string to_read_all() const;  // a hint
  bool counts(int32_t target) const { return target >= 0 && target != data_.mask_id; }
  // File or folder of the run's tokenizer; "" if its configuration names none.
  const std::string& tokenizer() const { return data_.tokenizer; }
  // Of the tokens and targets, and of the checkpoint's files.
  const std::string& text_sha256() const { return text_sha256_; }
  const std::string& checkpoint_sha256() const { return checkpoint_sha256_; }

  std::string device() const { return backend() == Backend::kGpu ? "cuda" : "cpu"; }

  // Nats of the targets of micro-batch i; the view is valid until the next call.
  View<const float, 1> evaluate(int i, MoeProbe* probe);
  // The selection bias (E) of a layer; with Bias::kAlways also where the run trained none.
  std::vector<float> bias(int64_t layer);
  void set_bias(int64_t layer, std::span<const float> bias);

 private:
  Backend backend() const { return loaded_->session.backend; }
  View<float, 1> bias_view(int64_t layer);

  CheckpointSource source_;
  RunData data_;
  std::vector<std::string> files_;
  UnreadSources unread_;
  std::vector<int64_t> layers_;
  std::unique_ptr<ValidationSet> set_;
  std::unique_ptr<LoadedModel> loaded_;
  View<float, 1> nats_;
  std::string text_sha256_, checkpoint_sha256_;
};

}  // namespace assay
