// Checkpoints of a run: <run>/checkpoints/step-00001000/{model.safetensors, optimizer.safetensors,
// state.json, MANIFEST.json}.
//
// Written under a temporary name, fsynced, renamed; the manifest (size and SHA-256 of every file)
// comes last, so a folder without a valid manifest is not a checkpoint. Whatever goes wrong while
// saving, the ones before stay.
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

// What a run needs besides tensors to go on as if it had not stopped.
struct TrainingState {
  int64_t step = 0;    // optimizer steps done
  int64_t tokens = 0;  // trained on
  Cursor cursor = {};  // the next batch
  uint64_t seed = 0;
  double schedule_share = 0;  // of the peak learning rate at the last step, for people
  std::string config_yaml;    // resolved
  std::map<std::string, std::string> config_hashes;  // by section
  std::map<std::string, std::string> versions;       // of libraries
  nlohmann::json extra =
      nlohmann::json::object();  // of whoever needs more: telemetry windows, data hashes
};

nlohmann::json to_json(const TrainingState& state);
TrainingState training_state(
    const nlohmann::json& json);  // UserError when a field is missing or of another type

class Checkpoints {
 public:
  enum class Keep { kRolling, kMilestone };
  using Warn = std::function<void(const std::string&)>;

  // keep_last: how many rolling checkpoints stay; milestones always stay.
  Checkpoints(std::string run_directory, int64_t keep_last, Warn warn);

  // Returns the folder. Removes rolling checkpoints beyond keep_last only after the new one is
  // complete. UserError when it cannot be written; the ones before are untouched.
  std::string save(const TrainingState& state, const std::vector<TensorRef>& model,
                   const std::vector<TensorRef>& optimizer, Keep keep = Keep::kRolling);

  // The newest valid one; each damaged one on the way is named in a warning.
  std::optional<std::string> newest() const;

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

// "" when the folder is a complete checkpoint whose files have their hashes, else what is wrong.
std::string checkpoint_problem(const std::string& folder);

TrainingState load_state(const std::string& folder);
// Without the tensors of the optimizer: for evaluation.
void load_model(const std::string& folder, const std::vector<TensorRef>& model);
void load_optimizer(const std::string& folder, const std::vector<TensorRef>& optimizer);

// The checkpoint meant by a user: a checkpoint folder, or the newest valid one of a run.
std::string require_checkpoint(const std::string& run_or_checkpoint, const Checkpoints::Warn& warn);

}  // namespace assay
