// A run directory, runs/<name>/. The process that trains in it holds its lock.
//
//   RunDir run("runs/moe", RunDir::Start::kContinue);
//   if (run.previous()) require_same_run(run, config, steps_done);
//   run.write_config(config);
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/build_info.h"
#include "engine/config/config.h"
#include "engine/config/run_files.h"
#include "engine/run/folder_lock.h"

namespace assay {

// The folder of the run that a user names. Throws UserError if it does not exist or is not a run.
std::filesystem::path require_run(const std::string& run);

// Describes the source of a run that began from another program's weights.
constexpr const char* kImportedFile = "imported.json";
constexpr const char* kWeightsHash = "weights_sha256";
constexpr const char* kImportedFolder = "folder";  // where the model was
// Describes the trunk of a run that began as a branch of another (session/branch.h).
constexpr const char* kBranchFile = "branch.json";
// The tokenizer that a run was imported with; "" of another run, without one, and of no run ("").
constexpr const char* kRunTokenizer = "tokenizer.json";
std::string imported_tokenizer(const std::string& run);
// Under this key imported.json has the run's data.tokenizer, where that is its own file.
constexpr const char* kImportedTokenizer = "tokenizer";
// Under this key it says why the model's tokenizer was left behind at the import.
constexpr const char* kLeftTokenizer = "left_tokenizer";
// That reason; "" for every other run, for one of an earlier version, and for no run ("").
std::string left_tokenizer(const std::string& run);
// data.tokenizer of a run's configuration, as it is now: the folder of an imported run, of whose
// own file the configuration has the whole path, may have been renamed or copied since.
std::string present_tokenizer(const std::string& run, const DataConfig& data);
// Describes the source of a run that a matrix copied from another folder.
constexpr const char* kReusedFile = "reused.json";

// The algorithms of a GPU's dense products: the tune file that the run was given, and what they
// took (session/product_files.h).
constexpr const char* kTuneCopy = "tune.json";
constexpr const char* kProductsFile = "products.json";

// The texts that a run generated while it trained (eval.samples), one JSON object per line.
constexpr const char* kSamplesFile = "samples.jsonl";

// UserError if training cannot begin or go on in this folder: a file, files but no run, or a
// config.yaml of the user's. Changes nothing.
void require_run_or_empty(const std::string& path);

class RunDir {
 public:
  enum class Start {
    kContinue,  // continues an existing run
    kFresh,     // begins anew: remove_run() deletes an existing run, if it was not imported
    kFollow,    // of a rank that is not the first one, whose RunDir has the folder: changes nothing
  };

  // Makes the folder if needed and takes the lock. Ignores leftovers of a process that was killed
  // before write_config. Throws UserError if the folder cannot be written, another process trains
  // in it, or require_run_or_empty() or require_own_folder() does, with kFresh also for an imported
  // run.
  RunDir(const std::string& path, Start start);
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  // The configuration of the run to continue; nullopt for a new run, and with kFollow.
  const std::optional<Config>& previous() const { return previous_; }
  void write_config(const Config& config) const;
  // ranks/rank-00003.log; makes the folder.
  std::string rank_log(int rank) const;
  // With kFollow: UserError unless the first rank's FolderMark, of this path there, is in this
  // folder.
  void require_mark(const std::string& mark) const;
  // With kFresh: deletes the run that the folder has, if any. UserError if it cannot.
  void remove_run() const;

 private:
  std::string path_;
  std::optional<FolderLock> lock_;
  std::optional<Config> previous_;
};

// An empty file of a new name in the folder of a run, by which the other ranks know that folder.
class FolderMark {
 public:
  explicit FolderMark(const std::string& run);
  ~FolderMark();
  FolderMark(const FolderMark&) = delete;
  FolderMark& operator=(const FolderMark&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Throws UserError naming every difference that would change results of the steps already done.
void require_same_run(const RunDir& run, const Config& now, int64_t steps_done);
// The same of the run in a folder, which was begun with that configuration.
void require_same_run(const std::string& run, const Config& begun, const Config& now,
                      int64_t steps_done);
// The same with the configuration of the checkpoint that has these steps, where `now` is that of
// the run's config.yaml: someone may have edited the file since.
void require_unedited(const std::string& run, const Config& made_with, const Config& now,
                      int64_t steps_done);

struct RunMeta {
  std::vector<std::string> command;
  BuildInfo build;
  std::string device = "cpu";  // or "cuda: " and the GPU's name
  int64_t threads = 0;         // of a rank
  int ranks = 1;
  int64_t nodes = 1;          // machines of these ranks
  int64_t expert_ranks = 1;   // parallel.expert_ranks, which a later launch may change
  std::string recipe;         // precision.recipe, with `auto` resolved
  std::string precision;      // precision_text(): the recipe and its changes
  std::string config_sha256;  // of the fields that change a result
  std::map<std::string, std::string> data_sha256;  // by file
  std::map<std::string, std::string> data_hashed;  // how each hash was obtained, by file
  std::string tokenizer_sha256 = {};               // tokenizer_hash(); "" without one
  std::optional<int64_t> epoch_tokens = {};        // that a pass reads of the training data
  int64_t first_step = 0;                          // steps done when this launch began
  std::string products_library;                    // of a GPU's dense products; "" on a CPU
  std::string tune_sha256;                         // of the tune file; "" without one
};

// Writes meta.json: this launch, with host, CPU (of a run on it also the instructions that decide
// its bits), time and the SHA-256 of the program; earlier launches under "before".
void write_meta(const RunDir& run, const RunMeta& meta);

}  // namespace assay
