// Checkpoints of a run: <run>/checkpoints/step-00001000/{model.safetensors, optimizer.safetensors,
// state.json, MANIFEST.json}; of a run of several ranks a file of each kind for every rank
// (checkpoint_files.h). Both are read by one rank or many.
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
#include <span>
#include <string>
#include <vector>

#include "comm/group.h"
#include "cuda/exec.h"
#include "data/loader.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/checkpoint_slices.h"
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
  enum class Keep {
    kRolling,
    kMilestone,
    kByTime,  // until the next one, and beside the rolling ones, which it does not push out
  };
  using Warn = std::function<void(const std::string&)>;

  // keep_last: number of rolling checkpoints to keep; milestones are always kept. warn: called with
  // one line per problem; may be empty. ranks: all ranks of the run; nullptr, or a group of one,
  // where there is one rank. Otherwise every rank has a Checkpoints and makes the same calls; rank
  // 0 alone warns, and writes what is not a rank's own file.
  Checkpoints(std::string run_directory, int64_t keep_last, Warn warn, Group* ranks = nullptr);

  // Returns the folder. Removes rolling checkpoints beyond keep_last only after the new one is
  // complete; one that newest() found damaged, in this process or an earlier one, is none of the
  // keep_last. Throws UserError if it cannot be written; earlier checkpoints are not changed.
  // For one rank.
  std::string save(const TrainingState& state, const std::vector<TensorRef>& model,
                   const std::vector<TensorRef>& optimizer, Keep keep = Keep::kRolling);
  // The same from the slices that this rank owns; all ranks together own every element once. With
  // ranks it is collective: all return when the checkpoint is complete, or all throw the same
  // UserError, which names a rank that failed and why. The order of tensors is that of rank 0's
  // list, and then of the other ranks': rank 0 gives every tensor, without elements (count 0) where
  // it owns none, so that merge_checkpoint() writes what one rank would have saved. With one rank
  // the slices are whole tensors. `state` is rank 0's. The slices are in the memory of `on`: a
  // GPU's pass through two pieces of the host's, copied by the thread that saves.
  std::string save_slices(const TrainingState& state, std::span<const Slice> model,
                          std::span<const Slice> optimizer, Keep keep = Keep::kRolling,
                          Exec on = {});

  // The newest valid checkpoint; warns of each newer, damaged one. Collective with ranks: rank 0
  // looks, and all have its answer.
  std::optional<std::string> newest();
  // The newest that no launch has found damaged. Reads none of its files.
  std::optional<std::string> newest_by_name() const;

  // Until a checkpoint is saved, as many are kept as the launch before kept, if that is more than
  // keep_last.
  void keep_until_saved(int64_t keep_last_before) { keep_last_before_ = keep_last_before; }
  // How many checkpoints the next save would remove, of those up to this step: one less if it is a
  // milestone or one by time, which push out none.
  int64_t removed_by_next_save(int64_t loaded_step) const;

  // The link checkpoints/best: its checkpoint is kept until another one is marked. The step must
  // have been saved. best_step: nullopt if none is marked or its checkpoint is gone. Where a copy
  // of the run followed the link, `best` is a folder, which mark_best() and tidy() make a link
  // again.
  void mark_best(int64_t step);
  std::optional<int64_t> best_step() const;

  // After the checkpoint of this step was loaded: marks those that newest() found damaged, and
  // removes what a save that was killed would have removed. It removes nothing if there are newer
  // ones, which must be damaged.
  void tidy(int64_t loaded_step);

  // Folders of all steps, oldest first, valid or not.
  std::vector<std::string> all() const;

 private:
  void write(const std::string& name, const TrainingState& state, std::span<const Slice> model,
             std::span<const Slice> optimizer, Keep keep, const ReadElements& read) const;
  void write_together(const std::string& name, const TrainingState& state,
                      std::span<const Slice> model, std::span<const Slice> optimizer, Keep keep,
                      const ReadElements& read);
  std::optional<std::string> newest_here();
  bool is_damaged(const std::string& folder) const;
  void mark_damaged_ones() const;
  std::vector<std::string> removable(int64_t newest) const;
  void link_copied_best();
  void prune(int64_t newest);
  void prune_after_save(int64_t step);
  void remove_old(const std::string& folder) const;

  std::string folder_;
  int64_t keep_last_, keep_last_before_ = 0;
  std::map<std::string, std::string> damaged_;  // what newest() found: the problem, by folder
  Warn warn_;
  Group* ranks_;  // nullptr: one rank
};

TrainingState load_state(const std::string& folder);
// Fills the model's tensors only, for evaluation, as load_tensors().
std::string load_model(const std::string& folder, const std::vector<TensorRef>& model,
                       Exec on = {});

// The checkpoint that a user names: a checkpoint folder, checkpoints/best, or the newest valid one
// of a run. Throws UserError if there is none.
std::string require_checkpoint(const std::string& run_or_checkpoint, const Checkpoints::Warn& warn);

}  // namespace assay
