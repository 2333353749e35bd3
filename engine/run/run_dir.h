// A run directory, runs/<name>/. Whoever trains holds its lock.
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

#include "engine/config/config.h"
#include "engine/run/folder_lock.h"

namespace assay {

// The run named by a user. UserError when there is none: no such folder, a file, or a folder that
// no run wrote.
std::filesystem::path require_run(const std::string& run);

// In a run that began from another program's weights: what they were.
constexpr const char* kImportedFile = "imported.json";
// In a run that a matrix copied from another folder: from which.
constexpr const char* kReusedFile = "reused.json";

class RunDir {
 public:
  enum class Start {
    kContinue,  // a run that is there goes on
    kFresh,     // a run that is there is deleted
  };

  // Makes the folder if needed and takes the lock; what a process leaves that is killed before
  // write_config is no obstacle. UserError when it cannot be written, when another process trains
  // in it, or when it holds files but no run.
  RunDir(const std::string& path, Start start);
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }

  // The configuration of the run that goes on; nothing for a new one.
  const std::optional<Config>& previous() const { return previous_; }
  void write_config(const Config& config) const;

 private:
  void remove_run() const;

  std::string path_;
  std::optional<FolderLock> lock_;
  std::optional<Config> previous_;
};

// UserError naming every difference that would change results of the steps already done.
void require_same_run(const RunDir& run, const Config& now, int64_t steps_done);

// What the program was built from; session/build_info.h fills it.
struct BuildInfo {
  std::string version;
  std::string commit;  // "unknown" outside a git checkout
  bool dirty = false;
  std::string compiler;
  std::string flags;
};

struct RunMeta {
  std::vector<std::string> command;
  BuildInfo build;
  std::string device = "cpu";  // or "cuda: " and the GPU's name
  int64_t threads = 0;
  std::string recipe;                              // precision as resolved
  std::string precision;                           // the same with all that changes it, in words
  std::string config_sha256;                       // of the fields that change a result
  std::map<std::string, std::string> data_sha256;  // by file
  int64_t first_step = 0;                          // steps done when this launch began
};

// meta.json: this launch, with host, CPU, time and the SHA-256 of the program; earlier launches
// under "before".
void write_meta(const RunDir& run, const RunMeta& meta);

}  // namespace assay
