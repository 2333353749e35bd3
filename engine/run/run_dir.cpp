#include "engine/run/run_dir.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/file.h"
#include "base/shell_word.h"
#include "base/suggest.h"
#include "engine/config/differences.h"
#include "engine/config/schedule.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/imported_run.h"
#include "engine/run/own_folder.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRanks = "ranks";  // logs of ranks, and their last words
constexpr const char* kMark = ".mark-";
constexpr const char* kMayBeLinks[] = {"checkpoints", "evals", "dissect"};

// Everything a run writes. config.yaml is removed last: until then the folder is still a run.
constexpr const char* kOwnFiles[] = {"checkpoints",
                                     "telemetry.db",
                                     "telemetry.db-wal",
                                     "telemetry.db-shm",
                                     "telemetry.db-journal",
                                     "meta.json",
                                     "log.txt",
                                     kRanks,
                                     "receipt.json",
                                     "report.html",
                                     "evals",
                                     "dissect",
                                     "samples.jsonl",
                                     kTuneCopy,
                                     kProductsFile,
                                     kBranchFile,
                                     kImportedFile,
                                     kReusedFile,
                                     kRunConfig};

// True for what a process killed before it wrote config.yaml leaves: empty files and folders of a
// run, and AtomicFile's part file of the configuration. A new run may overwrite them.
bool left_by_start(const fs::path& path) {
  const std::string name = path.filename().string();
  std::error_code ignored;
  if (name == kFolderLock || name == kRanks) return true;
  if (name == std::string(kRunConfig) + ".part") {
    const std::string text = to_yaml(Config());
    const std::string begin = text.substr(0, text.find('\n') + 1);
    const std::string there = fs::is_regular_file(path) ? read_file(path) : "?";
    return there.empty() || there.rfind(begin, 0) == 0;
  }
  const auto own = [&](const char* file) { return name == file; };
  return std::any_of(std::begin(kOwnFiles), std::end(kOwnFiles), own) &&
         (fs::is_empty(path, ignored) || holds_only_mark(path.string()));
}

bool holds_files(const std::string& path) {
  const std::vector<std::string> names = names_in(path);
  return !std::all_of(names.begin(), names.end(), [&](const std::string& name) {
    return left_by_start(fs::path(path) / name);
  });
}

constexpr const char* kGiveARun =
    "give the directory of a run, e.g. runs/demo-moe; `assay train CONFIG` makes one";

constexpr size_t kMostNamed = 5;  // in a hint

bool has_config(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kRunConfig, ignored);
}

// UserError if it is not known what is at the path: a folder above it may not be entered. To
// has_config() it is then absent.
void require_access(const fs::path& path) {
  std::error_code error;
  if (fs::exists(path, error) || error != std::errc::permission_denied) return;
  throw UserError("cannot read " + path.string() + ": " + error.message(),
                  "check the permissions of the folders on its path");
}

// For a hint: none if the folder cannot be read.
std::vector<std::string> runs_in(const fs::path& folder) {
  std::vector<std::string> runs;
  try {
    for (const std::string& name : names_in(folder.string())) {
      if (is_run(folder / name)) runs.push_back(name);
    }
  } catch (const UserError&) {
  }
  return runs;
}

// A hint for a path that is not a run: the runs in it, the run that contains it, the run of that
// name in runs/, or the nearest name in the same folder.
std::string hint_for(const std::string& name) {
  const fs::path path = fs::path(name).lexically_normal();
  const fs::path named = path.has_filename() ? path : path.parent_path();  // "x/" is x
  if (const std::vector<std::string> inside = runs_in(named); !inside.empty()) {
    const std::string first = (named / inside.front()).string();
    const std::string second = inside.size() > 1 ? " " + (named / inside[1]).string() : "";
    std::error_code ignored;
    const bool matrix = fs::exists(named / "matrix.json", ignored);  // lab/matrix/state.h
    return strprintf("it holds %zu runs: name one, or several if the command takes several: %s%s",
                     inside.size(), first.c_str(), second.c_str()) +
           (matrix ? "; `assay matrix FILE --summary` prints the tables of the matrix" : "");
  }
  const auto meant = [](const fs::path& run) {
    return "did you mean " + run.string() + "? " + kGiveARun;
  };
  for (fs::path above = named.parent_path(); !above.empty(); above = above.parent_path()) {
    if (is_run(above)) return meant(above);  // a checkpoint's folder, or a file of a run
    if (above == above.parent_path()) break;
  }
  if (named.is_relative() && is_run("runs" / named)) return meant("runs" / named);
  const fs::path parent = named.parent_path();
  const std::vector<std::string> beside = runs_in(parent.empty() ? "." : parent);
  const std::string near = nearest_name(named.filename().string(), beside);
  if (!near.empty()) return meant(parent / near);
  if (parent.empty() || beside.empty()) return kGiveARun;
  std::string names;
  for (size_t i = 0; i < std::min(beside.size(), kMostNamed); ++i) {
    names += (names.empty() ? "" : ", ") + beside[i];
  }
  return strprintf("runs in %s: %s%s; `assay train CONFIG` makes one", parent.c_str(),
                   names.c_str(), beside.size() > kMostNamed ? ", ..." : "");
}

}  // namespace

std::filesystem::path require_run(const std::string& run) {
  std::error_code ignored;
  if (run.empty()) throw UserError("the name of the run is empty", kGiveARun);
  require_access(run);
  if (!fs::exists(run, ignored)) throw UserError("no run at " + run, hint_for(run));
  if (!fs::is_directory(run, ignored))
    throw UserError(run + " is a file, not a run", hint_for(run));
  require_access(fs::path(run) / kRunConfig);
  if (is_run(run)) return run;
  throw UserError(
      run + " is not a run: " +
          (has_config(run) ? "its config.yaml was not written by one" : "it has no config.yaml"),
      hint_for(run));
}

namespace {

void require_folder_name(const std::string& path) {
  std::error_code ignored;
  if (path.empty()) throw UserError("the name of the run is empty", "e.g. --run runs/first");
  if (fs::exists(path, ignored) && !fs::is_directory(path, ignored)) {
    throw UserError(path + " is a file, not a run directory", "choose another --run");
  }
}

}  // namespace

void require_run_or_empty(const std::string& path) {
  require_folder_name(path);
  std::error_code ignored;
  require_access(fs::path(path) / kRunConfig);
  if (!fs::exists(path, ignored)) return;
  if (!has_config(path) && holds_files(path)) {
    throw UserError(path + " has files but no run in it",
                    "choose another --run, or an empty folder");
  }
  if (has_config(path) && !is_run(path)) {
    throw UserError(path + " has a config.yaml that no run wrote: training there would replace it",
                    "choose another --run, e.g. --run " + (fs::path(path) / "run").string());
  }
}

RunDir::RunDir(const std::string& path, Start start) : path_(path) {
  std::error_code ignored;
  if (start == Start::kFollow) {
    if (fs::is_directory(path_, ignored)) return;
    throw UserError("the run directory " + path_ + " is not there for this rank",
                    "all ranks need one file system with the same path to it; give --run as an "
                    "absolute path");
  }
  require_run_or_empty(path_);  // before anything is made there
  make_folders(path_);
  lock_.emplace(path_, "choose another --run");
  require_run_or_empty(path_);
  const bool goes_on = is_run(path_);
  if (goes_on && start == Start::kFresh) {
    require_no_imported_weights(path_);
    return;
  }
  for (const char* name : kMayBeLinks) require_own_folder(file(name));
  require_no_link(file(kRanks));
  if (goes_on) previous_ = load_config(file(kRunConfig));
}

// Links too, not what they lead to.
void RunDir::remove_run() const {
  if (!is_run(path_)) return;
  for (const char* name : kOwnFiles) {
    std::error_code error;
    fs::remove_all(file(name), error);
    // The ranks of this launch write their last words there all the time (comm/last_words.h).
    if (error == std::errc::directory_not_empty && name == std::string(kRanks)) continue;
    if (error) {
      throw UserError("cannot remove " + file(name) + ": " + error.message(),
                      "check the permissions there");
    }
  }
}

std::string RunDir::rank_log(int rank) const {
  make_folders(file(kRanks));
  return file(strprintf("%s/rank-%05d.log", kRanks, rank));
}

void RunDir::require_mark(const std::string& mark) const {
  const fs::path left = mark;
  std::error_code ignored;
  if (fs::exists(fs::path(file(kRanks)) / left.filename(), ignored)) return;
  throw UserError("the run directory " + fs::absolute(path_).lexically_normal().string() +
                      " is not that of rank 0, " + left.parent_path().parent_path().string(),
                  "all ranks need one file system with the same path to it");
}

void RunDir::write_config(const Config& config) const {
  write_file_atomic(file(kRunConfig), to_yaml(config));
}

// A new name each time: a network's file system may remember that an old one was absent.
FolderMark::FolderMark(const std::string& run) {
  const std::string folder = fs::absolute(run).lexically_normal().string() + "/" + kRanks;
  make_folders(folder);
  for (const std::string& name : names_in(folder)) {
    std::error_code ignored;  // marks of processes that were killed; the run is locked
    if (name.starts_with(kMark)) fs::remove(fs::path(folder) / name, ignored);
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  path_ =
      strprintf("%s/%s%d-%lld", folder.c_str(), kMark, int(getpid()), static_cast<long long>(now));
  write_file_atomic(path_, "");
}

FolderMark::~FolderMark() {
  std::error_code ignored;
  fs::remove(path_, ignored);
}

namespace {

// How the run goes on with the values that it has, which need not be those of today's defaults.
std::string own_values_hint(const std::string& run) {
  return strprintf("`assay train %s --run %s` goes on with the run's own values; for these ",
                   shell_word(run + "/" + kRunConfig).c_str(), shell_word(run).c_str());
}

// Of another model the first differences say enough.
void require_same_model(const std::string& run, const std::vector<FieldDifference>& differences,
                        const std::string& hint) {
  constexpr size_t kMostShown = 3;
  const bool other_model = std::any_of(differences.begin(), differences.end(), [](const auto& one) {
    return one.field.starts_with("model.");
  });
  if (!other_model || differences.size() <= kMostShown) return;
  std::string text;
  for (size_t i = 0; i < kMostShown; ++i) text += differences[i].text() + "; ";
  throw UserError(run + " was started with another configuration: " + text +
                      strprintf("and %zu more", differences.size() - kMostShown),
                  hint + (is_imported(run) ? "" : ", or delete it with --fresh"));
}

// Whether only the end of the run and its learning rates differ, which a branch may change.
bool all_of_schedule(const std::vector<FieldDifference>& differences) {
  return std::all_of(differences.begin(), differences.end(), [](const FieldDifference& one) {
    return one.field == "run.steps" || one.field.starts_with("schedule.");
  });
}

// The newest step with a checkpoint that `assay branch` can leave from, after the warm-up and
// before the warm-down; nothing if there is none.
std::optional<int64_t> newest_branch_step(const std::string& run, const Config& begun) {
  const Schedule schedule = make_schedule(begun);
  std::optional<int64_t> newest;
  for (const std::string& name : names_in(run + "/checkpoints")) {
    const int64_t step = step_of(name);
    if (step < 1 || step < schedule.warmup || step > schedule.decay_begin()) continue;
    if (step > recipe_steps(begun)) continue;  // its tail in bf16 has begun
    newest = std::max(newest.value_or(step), step);
  }
  return newest;
}

// "; `assay branch` ...": how the run could go on to another end.
std::string branch_hint(const std::string& run, const Config& begun) {
  if (const std::optional<int64_t> step = newest_branch_step(run, begun)) {
    return strprintf("; `assay branch` goes on from its checkpoint of step %ld with another end",
                     long(*step));
  }
  return "; `assay branch` would need a checkpoint from before its warm-down, as "
         "contract.landings keeps them";
}

}  // namespace

namespace {

// UserError if steps that were made with `begun` would have other results now. wrong: before the
// differences; hint: before what `assay branch` could do; other_model: the hint if they are many,
// before what --fresh does.
void require_same(const std::string& run, const Config& begun, const Config& now,
                  int64_t steps_done, const std::string& wrong, const std::string& hint,
                  const std::string& other_model) {
  const std::vector<FieldDifference> differences =
      result_changing_differences(begun, now, steps_done);
  if (differences.empty()) return;
  require_same_model(run, differences, other_model);
  std::string all;
  for (const FieldDifference& one : differences) all += (all.empty() ? "" : "; ") + one.text();
  throw UserError(wrong + ": " + all,
                  hint + (all_of_schedule(differences) ? branch_hint(run, begun) : ""));
}

}  // namespace

void require_same_run(const RunDir& run, const Config& now, int64_t steps_done) {
  CHECK(run.previous().has_value(), "%s is a new run", run.path().c_str());
  require_same_run(run.path(), *run.previous(), now, steps_done);
}

void require_same_run(const std::string& run, const Config& begun, const Config& now,
                      int64_t steps_done) {
  require_same(
      run, begun, now, steps_done, run + " was started with another configuration",
      is_imported(run)
          ? "give the same values; with others import the model again, since training in another "
            "--run begins from random weights: " +
                import_again(run)
          : own_values_hint(run) + "choose another --run, or delete it with --fresh",
      own_values_hint(run) + "choose another --run");
}

void require_unedited(const std::string& run, const Config& made_with, const Config& now,
                      int64_t steps_done) {
  const std::string file = run + "/" + kRunConfig;
  require_same(
      run, made_with, now, steps_done,
      strprintf("%s was edited: the %ld steps of the run were made with other values", file.c_str(),
                long(steps_done)),
      std::string("put the first values back there, ") +
          (is_imported(run) ? "or import the model again with the others: " + import_again(run)
                            : "train with the others in another --run, or delete the run with "
                              "--fresh"),
      "put the first values back there: they are of another model; choose another --run for it");
}

std::string imported_tokenizer(const std::string& run) {
  std::error_code ignored;
  const std::string file = run + "/" + kRunTokenizer;
  return is_imported(run) && fs::exists(file, ignored) ? file : "";
}

std::string left_tokenizer(const std::string& run) {
  return imported_text(run, kLeftTokenizer);
}

// The configuration has the path of the run's last launch, and the run may have been renamed before
// that and since. Every launch compares what it reads with the run's own file, unless
// data.check_tokenizer is off: so a file at such a path is that one, or came there later.
std::string present_tokenizer(const std::string& run, const DataConfig& data) {
  const std::string own = imported_tokenizer(run), &configured = data.tokenizer;
  std::error_code ignored;
  if (own.empty() || configured.empty() || fs::equivalent(own, configured, ignored)) {
    return configured;
  }
  const bool is_named_so = fs::path(configured).filename() == kRunTokenizer;
  const bool is_gone = is_named_so && !fs::exists(configured, ignored);
  // data.tokenizer as the run was imported with it, if that is its own file; "" if it is another,
  // and of an earlier version.
  const std::string at_import = imported_text(run, kImportedTokenizer);
  const bool was_own =
      !at_import.empty() && (configured == at_import || (is_named_so && data.check_tokenizer));
  if (!is_gone && !was_own) return configured;
  return fs::absolute(own).lexically_normal().string();
}

}  // namespace assay
