// The files of a checkpoint's folder, step-00001000. Format 1, of one rank, has model.safetensors
// and optimizer.safetensors; format 2, of several ranks, has model.00000.safetensors and
// optimizer.00000.safetensors of every rank, with what that rank holds of each tensor
// (checkpoint_slices.h). Both have state.json, and MANIFEST.json with the size and SHA-256 of the
// other files.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "engine/run/safetensors.h"

namespace assay {

inline constexpr const char* kCheckpointState = "state.json";
inline constexpr const char* kCheckpointManifest = "MANIFEST.json";

enum class TensorKind { kModel, kOptimizer };

// "model.safetensors"
std::string whole_file(TensorKind kind);
// "model.00003.safetensors"
std::string rank_file(TensorKind kind, int64_t rank);

struct CheckpointManifest {
  int64_t step = 0;
  bool milestone = false;
  bool by_time = false;  // beside the checkpoints of run.checkpoint_every
  int64_t ranks = 1;     // that wrote it; more than one: format 2
  // Format 2: names in the order that they have in format 1.
  std::vector<std::string> model = {}, optimizer = {};
  std::map<std::string, WrittenFile> files = {};

  int format() const { return ranks == 1 ? 1 : 2; }
  const std::vector<std::string>& order(TensorKind kind) const {
    return kind == TensorKind::kModel ? model : optimizer;
  }
  std::vector<std::string> tensor_files(TensorKind kind) const;
  // For messages: "FOLDER/model.safetensors", or "FOLDER/model.*.safetensors" in format 2.
  std::string tensor_files_text(const std::string& folder, TensorKind kind) const;
  std::string text() const;  // of the file
};

// Throws UserError if there is none, or if it is not one of a checkpoint.
CheckpointManifest read_checkpoint_manifest(const std::string& folder);

// "" if the folder is a complete checkpoint whose files match their hashes and hold every tensor
// once, else the problem. ReadFailed if a file is there and cannot be read.
std::string checkpoint_problem(const std::string& folder);

// A file in the folder of a checkpoint that a launch found damaged, and went on from an earlier
// one: the problem, for people. Whether the checkpoint is whole now, checkpoint_problem() says.
inline constexpr const char* kDamagedMark = "DAMAGED.txt";
bool is_marked_damaged(const std::string& folder);
// Nothing if the mark is there already, or cannot be written.
void mark_damaged(const std::string& folder, const std::string& problem);

// "step-00001000"; and the step of such a name, -1 if it is another one.
std::string step_name(int64_t step);
int64_t step_of(const std::string& name);

// Names of folders that are not complete begin with it.
inline constexpr const char* kTemporary = ".tmp-";

// A folder under a temporary name until publish(); removed if that is never called.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(std::string path);
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  // Renames it; a checkpoint of that name is replaced.
  void publish(const std::string& name);

 private:
  std::string path_;
};

// Removes what interrupted saves left. The run is locked, so no other process writes there.
void remove_leftovers(const std::string& checkpoints);
// Renames before removing, so that an interruption leaves no partial checkpoint under its name.
void remove_checkpoint(const std::string& folder);

}  // namespace assay
