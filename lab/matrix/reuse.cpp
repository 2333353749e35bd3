#include "lab/matrix/reuse.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "base/check.h"
#include "base/copy_file.h"
#include "base/file.h"
#include "base/joined.h"
#include "data/json_text.h"
#include "engine/cpu_bits.h"
#include "engine/run/folder_lock.h"
#include "engine/run/run_dir.h"
#include "lab/receipt/launch_precision.h"
#include "lab/receipt/make.h"
#include "lab/runs/launches.h"
#include "lab/runs/run_record.h"
#include "ops/instruction_path.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

struct FoundRun {
  std::string path;
  Config config;
};

// The runs of a matrix folder, or the folder itself if it is a run; sorted by path. Empty if there
// is no such folder.
std::vector<FoundRun> runs_of(const std::string& folder) {
  std::vector<std::string> paths;
  if (is_run(folder)) paths.push_back(folder);
  for (const std::string& name : names_in(folder)) {
    const fs::path path = fs::path(folder) / name;
    if (path.extension() != kIncompleteCopy && is_run(path)) paths.push_back(path.string());
  }
  std::sort(paths.begin(), paths.end());
  std::vector<FoundRun> runs;
  for (const std::string& path : paths) runs.push_back({path, load_config(path + "/config.yaml")});
  return runs;
}

// True if the run of a cell was copied from this folder.
bool taken_before(const std::string& folder, const std::vector<const Cell*>& cells,
                  const MatrixFolder& own) {
  const auto plain = [](const fs::path& path) {
    const fs::path normal = fs::absolute(path).lexically_normal();
    return normal.has_filename() ? normal : normal.parent_path();
  };
  return std::any_of(cells.begin(), cells.end(), [&](const Cell* cell) {
    const auto origin = json_in_file<ordered_json>(own.run(*cell) + "/" + kReusedFile);
    if (!origin.is_object() || !origin.contains("from") || !origin["from"].is_string())
      return false;
    const fs::path from = plain(origin["from"].get<std::string>());
    return from == plain(folder) || from.parent_path() == plain(folder);
  });
}

using Wanted = std::multimap<std::string, const Cell*>;  // config_sha256 -> cells

// Whether the run has read what the cell would read, as far as both are known.
bool has_data_of(const std::string& run, const Cell& cell) {
  return !data_change(data_hashes_of(run), cell.data);
}

// The cell that has the configuration of a run, and its data if there is such a one; nullptr =
// none. Cells that differ only in contract.step_seconds have one hash, as have those that read
// files of the same names in different folders.
const Cell* cell_of(const Wanted& wanted, const FoundRun& run) {
  const auto [begin, end] = wanted.equal_range(config_sha256(run.config));
  const Cell* first = nullptr;
  for (auto one = begin; one != end; ++one) {
    if (!matrix_differences(run.config, one->second->config).empty()) continue;
    if (has_data_of(run.path, *one->second)) return one->second;
    if (first == nullptr) first = one->second;
  }
  return first;
}

[[noreturn]] void fail_without_match(const std::string& folder, const std::vector<FoundRun>& runs,
                                     const Wanted& wanted) {
  if (runs.empty()) {
    throw UserError("--reuse " + folder + ": no run in it",
                    "give the folder of a matrix or of a run, e.g. --reuse runs/precision");
  }
  std::string nearest;
  size_t fewest = SIZE_MAX;
  for (const auto& [hash, cell] : wanted) {
    for (const FoundRun& run : runs) {
      const std::vector<FieldDifference> differences = matrix_differences(run.config, cell->config);
      if (differences.empty() || differences.size() >= fewest) continue;
      fewest = differences.size();
      nearest =
          "; " + run.path + " is nearest, to " + cell->name + ": " + differences.front().text();
      if (fewest > 1) nearest += strprintf(" (and %zu more)", fewest - 1);
    }
  }
  throw UserError(
      "--reuse " + folder + ": none of its runs has the configuration of a waiting cell" + nearest,
      "leave --reuse out to train all cells, or give the folder of runs of the same configuration");
}

void require_own_data(const RunRecord& run, const std::string& cell, const DataHashes& now) {
  const DataHashes own{.files = run.data_sha256, .tokenizer_sha256 = run.tokenizer_sha256};
  const std::optional<FieldDifference> change = data_change(own, now);
  if (!own.files.empty() && !change) return;
  const std::string other = change ? change->text() : "it records none";
  throw UserError(run.path + " was trained on other data than " + cell + " would be: " + other,
                  "leave --reuse out to train the cell here, on its own data");
}

void require_verified(const std::string& run, const VerifyOptions& program) {
  const Verification verified = verify_receipt(run, program);
  for (const Check& check : verified.checks) {
    if (check.finding != Finding::kDrift) continue;
    throw UserError(run + " does not verify: " + check.what + ": " + check.detail,
                    "`assay receipt verify " + run +
                        "` lists everything; leave --reuse out to train its cell here");
  }
}

// UserError unless all launches that made steps of the run had the same precision and
// configuration. That the last one's precision is that of config.yaml is a part of verifying.
void require_one_configuration(const RunRecord& run) {
  const std::vector<ReceiptJson> launches = contributing_launches(run.path, run.steps_done);
  const std::string hint =
      "no cell trains like that: leave --reuse out to train it here, in one configuration";
  const std::string change = precision_change(launches);
  if (!change.empty()) throw UserError(run.path + " was " + change, hint);
  const auto is_last = [&](const std::string& hash) { return is_config_sha256(hash, run.config); };
  for (size_t i = 1; i < launches.size(); ++i) {
    const std::string before = text_or_empty(launches[i - 1], "config_sha256"),
                      now = text_or_empty(launches[i], "config_sha256");
    if (before.empty() || now.empty() || before == now) continue;
    if (is_last(before) && is_last(now)) continue;
    throw UserError(strprintf("%s changed its configuration after step %ld", run.path.c_str(),
                              long(first_step(launches[i]))),
                    hint);
  }
}

void require_own_weights(const std::string& run) {
  std::error_code ignored;
  if (!fs::exists(fs::path(run) / kImportedFile, ignored)) return;
  throw UserError(run + " began from imported weights (" + kImportedFile + ")",
                  "a cell begins from its seed: leave --reuse out to train it here");
}

// "AMX": what decides the bits of the run on this machine's CPU.
std::string instructions_here(const RunRecord& run) {
  return deciding_instructions(instruction_path(), run.config, CpuWork::kTraining);
}

// All other devices that made steps of the run, and CPUs with other instructions where these decide
// its bits: "cpu with AVX2, cuda: NVIDIA H200".
std::string other_devices(const RunRecord& run, const std::string& device) {
  std::set<std::string> others;
  for (const ReceiptJson& launch : contributing_launches(run.path, run.steps_done)) {
    const std::string name = text_or_empty(launch, "device");
    const std::string instructions = instructions_over_launches({launch}, run.config);
    if (name != device) {
      others.insert(name.empty() ? "an unknown device" : name);
    } else if (!instructions.empty() && instructions != instructions_here(run)) {
      others.insert(name + " with " + instructions);
    }
  }
  return joined(others, ", ");
}

void require_same_device(const RunRecord& run, const std::string& device) {
  const std::string others = other_devices(run, device);
  if (others.empty()) return;
  const std::string with = device == "cpu" ? " with " + instructions_here(run) : "";
  throw UserError(
      run.path + " was trained on " + others + ", this matrix trains on " + device + with,
      "two devices round differently: leave --reuse out to train its cell here, or "
      "--reuse-elsewhere to mix them");
}

void require_same_program(const std::string& run, const VerifyOptions& program) {
  const Receipt receipt = read_receipt(require_receipt(run));
  int64_t same = 0, other = 0;
  std::string commits;
  for (const ReceiptInput& input : receipt.inputs) {
    if (input.kind == "binary") ++(input.sha256 == program.program_sha256 ? same : other);
    if (input.kind == "commit") commits += " " + input.name.substr(0, 12);
  }
  if (same > 0 && other == 0) return;
  throw UserError(
      run + " was trained by another build of this program (commit" +
          (commits.empty() ? " unknown" : commits) + ", this one " + program.commit.substr(0, 12) +
          ")",
      "two builds may round differently: leave --reuse out to train its cell with this one, or "
      "--reuse-elsewhere to mix them");
}

// Files of a checkpoint are never rewritten, so hard links are safe.
void copy_run(const fs::path& from, const fs::path& to) {
  fs::create_directories(to);
  const auto follow = fs::directory_options::follow_directory_symlink;
  for (const auto& entry : fs::recursive_directory_iterator(from, follow)) {
    const fs::path relative = entry.path().lexically_relative(from);
    if (entry.is_directory()) {
      fs::create_directories(to / relative);
    } else if (entry.is_regular_file() && relative != kFolderLock) {
      std::error_code no_link = std::make_error_code(std::errc::not_supported);
      if (*relative.begin() == "checkpoints") {
        fs::create_hard_link(fs::canonical(entry.path()), to / relative, no_link);
      }
      if (no_link) copy_whole_file(entry.path(), to / relative);
    }
  }
}

// Removes the folder at the end of the scope; a complete copy has been renamed by then.
class RemovedAtEnd {
 public:
  explicit RemovedAtEnd(fs::path folder) : folder_(std::move(folder)) {}
  RemovedAtEnd(const RemovedAtEnd&) = delete;
  RemovedAtEnd& operator=(const RemovedAtEnd&) = delete;
  ~RemovedAtEnd() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

 private:
  fs::path folder_;
};

// Cells that wait for a run, by the hashes of the configurations that they accept.
Wanted wanted_by(const std::vector<const Cell*>& cells, const MatrixFolder& own) {
  Wanted wanted;
  for (const Cell* cell : cells) {
    const bool waits = cell->trained() && own.status(*cell).state == CellState::kWaiting;
    if (!waits) continue;
    wanted.emplace(config_sha256(cell->config), cell);
    if (cell->config.precision.products != ProductsMode::kAuto) continue;
    Config native = cell->config;
    native.precision.products = ProductsMode::kNative;
    wanted.emplace(config_sha256(native), cell);
  }
  return wanted;
}

// A run with the cell's data takes the place of one that has its configuration only.
void take(Reusable& reusable, const Cell* cell, const std::string& run) {
  const auto own = std::find_if(reusable.runs.begin(), reusable.runs.end(),
                                [&](const ReusableRun& one) { return one.cell == cell; });
  if (own == reusable.runs.end()) {
    reusable.runs.push_back({.cell = cell, .run = run});
  } else if (!has_data_of(own->run, *cell) && has_data_of(run, *cell)) {
    own->run = run;
  }
}

// Whether one of the runs has the configuration of a wanted cell.
bool take_fitting(Reusable& reusable, const std::vector<FoundRun>& runs, const Wanted& wanted) {
  bool fits = false;
  for (const FoundRun& run : runs) {
    const Cell* const cell = cell_of(wanted, run);
    if (cell == nullptr) continue;
    fits = true;
    const CellStatus status = run_status(run.path, *cell);
    if (status.unread) throw *status.unread;
    if (status.state != CellState::kDone) {
      reusable.unfinished.push_back(strprintf("%s: %s, step %ld of %ld", run.path.c_str(),
                                              cell_state_name(status.state),
                                              long(status.steps_done), long(run.config.run.steps)));
    } else {
      take(reusable, cell, run.path);
    }
  }
  return fits;
}

}  // namespace

Reusable find_reusable(const std::vector<const Cell*>& cells, const MatrixFolder& own,
                       const std::vector<std::string>& folders) {
  const Wanted wanted = wanted_by(cells, own);
  Reusable reusable;
  if (wanted.empty()) return reusable;
  for (const std::string& folder : folders) {
    const std::vector<FoundRun> runs = runs_of(folder);
    if (!take_fitting(reusable, runs, wanted) && !taken_before(folder, cells, own))
      fail_without_match(folder, runs, wanted);
  }
  return reusable;
}

std::vector<ReusableRun> reusable_within(const std::vector<const Cell*>& cells,
                                         const MatrixFolder& own) {
  const Wanted wanted = wanted_by(cells, own);
  Reusable reusable;
  if (!wanted.empty()) take_fitting(reusable, runs_of(own.path()), wanted);
  return reusable.runs;
}

void require_evidence(const ReusableRun& reusable, const ReuseEvidence& evidence) {
  const std::string& run = reusable.run;
  if (folder_in_use(run)) {
    throw UserError(run + " is in use by another process", "wait for it, or leave --reuse out");
  }
  require_own_weights(run);
  require_verified(run, evidence.program);
  const RunRecord record = read_run(run);
  require_one_configuration(record);
  require_own_data(record, reusable.cell->name, evidence.data);
  if (evidence.elsewhere == ReuseEvidence::Elsewhere::kRefuse) {
    require_same_program(run, evidence.program);
    require_same_device(record, evidence.device);
  }
}

// A folder with nothing but a lock file counts as empty.
void require_room(const ReusableRun& reusable, const MatrixFolder& folder) {
  const fs::path to = folder.run(*reusable.cell);
  for (const std::string& name : names_in(to.string())) {
    if (name == kFolderLock) continue;
    throw UserError(to.string() + " has files but no run in it",
                    "move them away, or choose another --run-dir");
  }
  if (folder_in_use(to)) {
    throw UserError(to.string() + " is in use by another process", "wait for it, or stop it");
  }
}

std::string take_over(const ReusableRun& reusable, const MatrixFolder& folder,
                      const ReuseEvidence& evidence) {
  const fs::path to = folder.run(*reusable.cell);
  const fs::path part = to.string() + kIncompleteCopy;
  const RemovedAtEnd removed(part);
  try {
    require_room(reusable, folder);
    fs::remove_all(to);
    fs::remove_all(part);
    copy_run(reusable.run, part);
    const CellStatus copied = run_status(part.string(), *reusable.cell);
    if (copied.unread) throw *copied.unread;
    if (copied.state != CellState::kDone || !copied.differences.empty()) {
      throw UserError(reusable.run + " was changed while it was copied",
                      "give the same command again when that run is finished");
    }
    require_evidence({.cell = reusable.cell, .run = part.string()}, evidence);
    const RunRecord record = read_run(part.string());
    ordered_json j;
    j["from"] = reusable.run;
    j["commit"] = record.commit;
    j["receipt_seal"] = read_receipt(require_receipt(part.string())).seal;
    write_file_atomic((part / kReusedFile).string(), json_text(j, 2) + "\n");
    fs::rename(part, to);
    return other_devices(read_run(to.string()), evidence.device);
  } catch (const fs::filesystem_error& error) {
    throw UserError(
        "cannot copy " + reusable.run + " to " + to.string() + ": " + error.code().message(),
        "check the write permissions and the free space");
  }
}

void remove_incomplete_copies(const Matrix& matrix, const MatrixFolder& folder) {
  for (const Cell& cell : matrix.cells) {
    std::error_code ignored;
    fs::remove_all(folder.file(cell.name) + kIncompleteCopy, ignored);
  }
}

}  // namespace assay
