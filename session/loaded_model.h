// A model from a checkpoint, ready to evaluate; used by `assay eval`, sample and export.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "data/bpe.h"
#include "engine/run/checkpoint.h"
#include "session/run_data.h"
#include "session/session.h"

namespace assay {

// A checkpoint's folder, state and configuration as resolved by its run; no tensors.
struct CheckpointSource {
  std::string folder;
  TrainingState state;
  Config config;
  bool names_data = false;       // the user has set data.*: what is read need not be the run's
  bool names_tokenizer = false;  // that sets data.tokenizer, or the corpus that has it
};
// Opens a checkpoint folder, or the newest valid checkpoint of a run; warns of newer ones that are
// not valid. Its data.tokenizer is that of present_tokenizer(). UserError when there is none, or
// its tensors are not those of its configuration.
enum class Warnings { kPrinted, kNone };
CheckpointSource open_checkpoint(const std::string& run_or_checkpoint,
                                 Warnings warnings = Warnings::kPrinted);

// The run of a checkpoint that is in its place, RUN/checkpoints/step-N: as given where RUN is a
// part of that, else absolute. "" for a checkpoint elsewhere, which may be a copy.
std::string run_of(const CheckpointSource& source);
// The same. UserError for a checkpoint in no run, "whose folder" `what`: "has the part".
std::string require_run_of(const CheckpointSource& source, const std::string& what);

// The options that take other files than those of the run, for hints; "": there is none.
struct OtherFiles {
  std::string shards = "--set data.val=FILE", tokenizer = "--set data.tokenizer=FILE";
  std::string moved_tokenizer = tokenizer;  // if the run's is not in its place any more
};
// The held-out data that the configuration of the checkpoint names. UserError as evaluation_data(),
// and if its tokenizer or a validation shard is not the one that the checkpoint's run has; what it
// has not recorded is not compared. Hashes the shards and the tokenizer. With source.names_data the
// shards may be others, with names_tokenizer the tokenizer.
RunData data_of_checkpoint(const CheckpointSource& source, const OtherFiles& way_out = {});

// The file or folder of the run's tokenizer, as far as it is there without its data: RUN's own, of
// an imported model, else data.tokenizer; "" for data.synth, and with data.check_tokenizer off.
std::string own_tokenizer(const CheckpointSource& source);

// The tokenizer at `path`, or if that is "" the one the checkpoint was trained with: RUN's own, of
// an imported model, else that of its data. UserError when there is none, when it has no
// <|endoftext|>, when it has more tokens than the model, when `path` has another one than
// known_tokenizer() and the run, or, without `path`, when its file has changed since (unless
// data.check_tokenizer is off, or source.names_tokenizer). Without `path` also when the model's own
// was left behind at its import, unless source.names_tokenizer, or data.check_tokenizer is off and
// there is a data.tokenizer.
Tokenizer checkpoint_tokenizer(const CheckpointSource& source, const std::string& path);

// The run's tokenizer as far as it is known without the file that a user names: own_tokenizer(),
// for data.synth that of the corpus if it is in the cache, else the one that the validation shards
// were made with.
struct KnownTokenizer {
  std::string where;  // the file that says so
  std::string hash;   // tokenizer_hash()
};
std::optional<KnownTokenizer> known_tokenizer(const CheckpointSource& source);

// Whether checkpoint_tokenizer() has compared `path` with the run's tokenizer; true for "", and
// with data.check_tokenizer off. What is measured with another one is no figure of the run.
bool tokenizer_was_compared(const CheckpointSource& source, const std::string& path);

struct EvaluationSize {
  int64_t positions = 0;  // tokens of the longest text
  int64_t rows = 0;       // tokens per forward pass
};

// A model with its memory, device and weights. Callers add their own buffers to `plan` before
// allocate().
struct LoadedModel {
  // ranks: those that share the work, each with the whole model; null: this is the only one.
  LoadedModel(const CheckpointSource& source, const std::string& device, EvaluationSize size,
              int32_t mask_id = -1, Ranks* ranks = nullptr);
  // Allocates the plan and loads the weights. UserError: not enough memory, a weight that is not
  // finite. Collective over the ranks.
  void allocate();

  const CheckpointSource& source;
  Session session;
  int64_t rows;  // tokens per forward pass the memory is planned for, >= size.rows
  std::unique_ptr<Model> model;
  MemoryPlan plan;
  View<std::byte, 1> workspace;
  Exec on;
};

}  // namespace assay
