// Checkpoints of a run: <run>/checkpoints/step-00001000/{model.safetensors, optimizer.safetensors,
// state.json, MANIFEST.json}.
//
// A checkpoint is written under a temporary name, fsynced and renamed; the manifest (size and
// SHA-256 of every file) comes last, so a folder without a valid manifest is not a checkpoint. If
// saving fails, earlier checkpoints are not changed. checkpoints/best is a link to the checkpoint
// with the lowest validation loss, if run.keep_best is on.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "data/loader.h"
#include "engine/tensor_ref.h"

namespace assay {

// What a run needs besides tensors to resume with the same bits.
struct TrainingState {
  int64_t step = 0;    // optimizer steps done
  int64_t tokens = 0;  // tokens trained on
  Cursor cursor = {};  // the next batch
  uint64_t seed = 0;
  double schedule_share = 0;  // share of the peak learning rate at the last step, for information
  std::string config_yaml;    // resolved
  std::map<std::string, std::string> config_hashes;  // by section
  std::map<std::string, std::string> versions;       // of libraries
  nlohmann::json extra = nlohmann::json::object();   // state of other parts: data hashes, probe
};

nlohmann::json to_json(const TrainingState& state);
// Throws UserError if a field is missing or has another type.
TrainingState training_state(const nlohmann::json& json);

class Checkpoints {
 public:
  enum class Keep { kRolling, kMilestone };
  using Warn = std::function<void(const std::string&)>;

  // keep_last: number of rolling checkpoints to keep; milestones are always kept. warn: called with
  // one line per problem; may be empty.
  Checkpoints(std::string run_directory, int64_t keep_last, Warn warn);

  // Returns the folder. Removes rolling checkpoints beyond keep_last only after the new one is
  // complete. Throws UserError if it cannot be written; earlier checkpoints are not changed.
  std::string save(const TrainingState& state, const std::vector<TensorRef>& model,
                   const std::vector<TensorRef>& optimizer, Keep keep = Keep::kRolling);

  // The newest valid checkpoint; warns of each newer, damaged one.
  std::optional<std::string> newest() const;

  // The link checkpoints/best: its checkpoint is kept until another one is marked. The step must
  // have been saved. best_step: nullopt if none is marked or its checkpoint is gone.
  void mark_best(int64_t step);
  std::optional<int64_t> best_step() const;

  // Folders of all steps, oldest first, valid or not.
  std::vector<std::string> all() const;

 private:
  void write(const std::string& name, const TrainingState& state,
             const std::vector<TensorRef>& model, const std::vector<TensorRef>& optimizer,
             Keep keep) const;
  void prune();

  std::string folder_;
  int64_t keep_last_;
  Warn warn_;
};

// "" if the folder is a complete checkpoint whose files match their hashes, else the problem.
std::string checkpoint_problem(const std::string& folder);

TrainingState load_state(const std::string& folder);
// Fills the model's tensors only, for evaluation.
void load_model(const std::string& folder, const std::vector<TensorRef>& model);
void load_optimizer(const std::string& folder, const std::vector<TensorRef>& optimizer);

// The checkpoint that a user names: a checkpoint folder, checkpoints/best, or the newest valid one
// of a run. Throws UserError if there is none.
std::string require_checkpoint(const std::string& run_or_checkpoint, const Checkpoints::Warn& warn);

}  // namespace assay
