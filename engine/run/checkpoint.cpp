#include "engine/run/checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/check.h"
#include "base/file.h"
#include "comm/agree.h"
#include "cuda/transfer.h"
#include "data/json_text.h"
#include "data/sha256.h"
#include "engine/run/run.h"
#include "engine/run/run_dir.h"
#include "engine/run/safetensors.h"
#include "engine/run/served_threads.h"
#include "engine/telemetry/reader.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* kBest = "best";

json parse_file(const std::string& path) {
  try {
    return json_or_throw(read_regular_file(path));
  } catch (const json::exception&) {
    throw UserError(path + ": is not JSON",
                    "the checkpoint is damaged: remove its folder to use the previous one");
  }
}

// nullopt if the folder has no readable manifest.
std::optional<bool> is_milestone(const std::string& folder) {
  try {
    const json manifest = json_in_file(folder + "/" + kCheckpointManifest);
    if (!manifest.is_object() || !manifest.contains("milestone")) return std::nullopt;
    return manifest["milestone"] == true;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

bool is_by_time(const std::string& folder) {
  try {
    return read_checkpoint_manifest(folder).by_time;
  } catch (const UserError&) {
    return false;
  }
}

// The step of a checkpoint in the folder `best`, where it is no link: `cp -rL` and `scp -r` copy
// what it links to. nullopt of anything else.
std::optional<int64_t> step_of_copy(const std::string& best) {
  std::error_code ignored;
  if (fs::is_symlink(best, ignored) || !fs::is_directory(best, ignored)) return std::nullopt;
  try {
    return read_checkpoint_manifest(best).step;
  } catch (const UserError&) {
    return std::nullopt;
  }
}

// Copies from a GPU's memory, and sets `failed` if that throws; none from the host's.
ReadElements copies_from(Exec on, bool& failed) {
  if (on.gpu == nullptr) return {};
  return [on, &failed](const TensorRef& tensor, int64_t first, int64_t count, void* into) {
    const int64_t element = dtype_bytes(tensor.dtype);
    try {
      copy_bytes(on, into, static_cast<const std::byte*>(tensor.data) + first * element,
                 static_cast<size_t>(count * element));
      wait(on);
    } catch (...) {
      failed = true;
      throw;
    }
  };
}

// The two files of tensors, both at a time: SHA-256 of one keeps one core busy. This thread makes
// the calls of `read`, if there is one.
std::map<std::string, WrittenFile> write_tensors(
    const std::string& folder, const std::string& model_file, std::span<const Slice> model,
    const std::string& optimizer_file, std::span<const Slice> optimizer, const ReadElements& read) {
  ServedThreads threads;
  ReadElements asked;
  if (read) {
    asked = [&](const TensorRef& tensor, int64_t first, int64_t count, void* into) {
      threads.ask([&] { read(tensor, first, count, into); });
    };
  }
  std::future<WrittenFile> of_model =
      threads.start([&] { return write_slices(folder + "/" + model_file, model, asked); });
  std::future<WrittenFile> of_optimizer =
      threads.start([&] { return write_slices(folder + "/" + optimizer_file, optimizer, asked); });
  threads.serve();
  std::map<std::string, WrittenFile> files;
  files[model_file] = of_model.get();
  files[optimizer_file] = of_optimizer.get();
  return files;
}

WrittenFile write_state(const std::string& folder, const TrainingState& state) {
  const std::string text = json_text(to_json(state), 2) + "\n";
  write_file_atomic(folder + "/" + kCheckpointState, text);
  return {.bytes = static_cast<int64_t>(text.size()), .sha256 = sha256_hex(text)};
}

}  // namespace

Checkpoints::Checkpoints(std::string run_directory, int64_t keep_last, Warn warn, Group* ranks)
    : folder_(std::move(run_directory) + "/checkpoints"),
      keep_last_(keep_last),
      warn_(std::move(warn)),
      ranks_(ranks != nullptr && ranks->size() > 1 ? ranks : nullptr) {
  CHECK(keep_last_ >= 1, "keep_last is %ld", static_cast<long>(keep_last_));
}

std::string Checkpoints::save(const TrainingState& state, const std::vector<TensorRef>& model,
                              const std::vector<TensorRef>& optimizer, Keep keep) {
  CHECK(ranks_ == nullptr, "save() of %d ranks, each with slices of its own", ranks_->size());
  return save_slices(state, whole_slices(model), whole_slices(optimizer), keep);
}

std::string Checkpoints::save_slices(const TrainingState& state, std::span<const Slice> model,
                                     std::span<const Slice> optimizer, Keep keep, Exec on) {
  const std::string name = folder_ + "/" + step_name(state.step);
  mark_damaged_ones();
  bool copy_failed = false;
  const ReadElements read = copies_from(on, copy_failed);
  try {
    if (ranks_ != nullptr) {
      write_together(name, state, model, optimizer, keep, read);
    } else {
      write(name, state, model, optimizer, keep, read);
    }
  } catch (const UserError& error) {
    if (on_any_rank(ranks_, copy_failed)) throw;  // of the GPU, not of the disk
    // Its own hint would name the removed temporary folder.
    throw UserError(error.what(),
                    "check the disk (df -h " + folder_ +
                        ") and run the same command again, without --fresh: it resumes "
                        "from the previous checkpoint");
  }
  if (ranks_ == nullptr) prune_after_save(state.step);
  return name;
}

void Checkpoints::write(const std::string& name, const TrainingState& state,
                        std::span<const Slice> model, std::span<const Slice> optimizer, Keep keep,
                        const ReadElements& read) const {
  make_folders(folder_);
  remove_leftovers(folder_);
  const std::string path = folder_ + "/" + kTemporary + step_name(state.step);
  TemporaryFolder temporary(path);

  for (const std::span<const Slice> slices : {model, optimizer}) {
    for (const Slice& s : slices) {
      CHECK(s.count == s.whole.size(), "%s: %ld elements of %s with one rank", s.whole.name.c_str(),
            long(s.count), s.whole.shape_text().c_str());
    }
  }
  CheckpointManifest manifest = {
      .step = state.step, .milestone = keep == Keep::kMilestone, .by_time = keep == Keep::kByTime};
  manifest.files = write_tensors(path, whole_file(TensorKind::kModel), model,
                                 whole_file(TensorKind::kOptimizer), optimizer, read);
  manifest.files[kCheckpointState] = write_state(path, state);
  write_file_atomic(path + "/" + kCheckpointManifest, manifest.text());
  temporary.publish(name);
}

void Checkpoints::write_together(const std::string& name, const TrainingState& state,
                                 std::span<const Slice> model, std::span<const Slice> optimizer,
                                 Keep keep, const ReadElements& read) {
  const std::string path = folder_ + "/" + kTemporary + step_name(state.step);
  std::optional<TemporaryFolder> temporary;  // of rank 0, which removes it if a rank failed
  on_first_rank(*ranks_, [&] {
    make_folders(folder_);
    remove_leftovers(folder_);
    temporary.emplace(path);
    return std::string();
  });

  const std::string own_files = together(*ranks_, [&] {
    const int64_t rank = ranks_->rank();
    json files;
    for (const auto& [file, done] :
         write_tensors(path, rank_file(TensorKind::kModel, rank), model,
                       rank_file(TensorKind::kOptimizer, rank), optimizer, read))
      files[file] = {{"bytes", done.bytes}, {"sha256", done.sha256}};
    return files.dump();
  });
  const std::vector<std::string> written = gather_texts(*ranks_, own_files);

  on_first_rank(*ranks_, [&] {
    CheckpointManifest manifest = {.step = state.step,
                                   .milestone = keep == Keep::kMilestone,
                                   .by_time = keep == Keep::kByTime,
                                   .ranks = ranks_->size()};
    for (const std::string& text : written) {
      const json files = json_or_throw(text);
      for (const auto& [file, done] : files.items())
        manifest.files[file] = {.bytes = done["bytes"], .sha256 = done["sha256"]};
    }
    // Also checks that the ranks gave every element once.
    const auto names = [&](TensorKind kind, std::span<const Slice> own) {
      std::vector<std::string> order;
      for (const Slice& s : own) {
        if (order.empty() || order.back() != s.whole.name) order.push_back(s.whole.name);
      }
      const CheckpointSlices all(path, manifest.tensor_files(kind), order);
      order.clear();
      for (const TensorRef& t : all.tensors()) order.push_back(t.name);
      return order;
    };
    manifest.model = names(TensorKind::kModel, model);
    manifest.optimizer = names(TensorKind::kOptimizer, optimizer);
    manifest.files[kCheckpointState] = write_state(path, state);
    write_file_atomic(path + "/" + kCheckpointManifest, manifest.text());
    temporary->publish(name);
    prune_after_save(state.step);
    return std::string();
  });
}

std::vector<std::string> Checkpoints::all() const {
  std::vector<std::pair<int64_t, std::string>> found;
  for (const std::string& name : names_in(folder_)) {
    const int64_t step = step_of(name);
    if (step >= 0) found.emplace_back(step, folder_ + "/" + name);
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> folders;
  folders.reserve(found.size());
  for (auto& [step, folder] : found) folders.push_back(std::move(folder));
  return folders;
}

std::optional<std::string> Checkpoints::newest() {
  if (ranks_ == nullptr) return newest_here();
  const std::string folder = on_first_rank(*ranks_, [&] { return newest_here().value_or(""); });
  return folder.empty() ? std::nullopt : std::optional(folder);
}

std::optional<std::string> Checkpoints::newest_here() {
  std::vector<std::string> folders = all();
  damaged_.clear();
  for (auto folder = folders.rbegin(); folder != folders.rend(); ++folder) {
    const std::string problem = checkpoint_problem(*folder);
    if (problem.empty()) return *folder;
    damaged_[*folder] = problem;
    if (warn_) warn_("ignoring the checkpoint " + *folder + ": " + problem);
  }
  return std::nullopt;
}

std::optional<std::string> Checkpoints::newest_by_name() const {
  const std::vector<std::string> folders = all();
  const auto newest = std::find_if(folders.rbegin(), folders.rend(), [](const std::string& folder) {
    return !is_marked_damaged(folder);
  });
  return newest == folders.rend() ? std::nullopt : std::optional(*newest);
}

// Also what an earlier launch found.
bool Checkpoints::is_damaged(const std::string& folder) const {
  return damaged_.contains(folder) || is_marked_damaged(folder);
}

// So that launches to come know it too, which need not look: there are newer ones then.
void Checkpoints::mark_damaged_ones() const {
  for (const auto& [folder, problem] : damaged_) mark_damaged(folder, problem);
}

// The checkpoint itself is kept if it is whole; else the copy takes its place. A folder that is no
// checkpoint stays, and mark_best() warns.
void Checkpoints::link_copied_best() {
  const std::string best = folder_ + "/" + kBest,
                    away = folder_ + "/" + kTemporary + "copy-of-best";
  const std::optional<int64_t> step = step_of_copy(best);
  if (!step) return;
  const std::string checkpoint = folder_ + "/" + step_name(*step);
  try {
    const bool whole = checkpoint_problem(checkpoint).empty();
    if (!whole && fs::exists(checkpoint)) remove_checkpoint(checkpoint);
    fs::remove_all(away);
    fs::rename(best, whole ? away : checkpoint);
    if (!whole) damaged_.erase(checkpoint);
    fs::create_symlink(step_name(*step), best);
    fs::remove_all(away);
  } catch (const std::exception& error) {
    if (warn_) warn_("cannot make " + best + " a link again: " + error.what());
  }
}

void Checkpoints::mark_best(int64_t step) {
  if (ranks_ != nullptr && ranks_->rank() > 0) return;
  link_copied_best();
  const std::string target = step_name(step), temporary = folder_ + "/" + kTemporary + kBest;
  std::error_code error;
  fs::remove(temporary, error);
  fs::create_symlink(target, temporary, error);
  if (!error) fs::rename(temporary, folder_ + "/" + kBest, error);
  if (error && warn_) {
    warn_("cannot mark " + target + " as the best checkpoint: " + error.message());
  }
  prune(step);
}

std::optional<int64_t> Checkpoints::best_step() const {
  std::error_code error;
  if (const std::optional<int64_t> copied = step_of_copy(folder_ + "/" + kBest)) return copied;
  const fs::path target = fs::read_symlink(folder_ + "/" + kBest, error);
  if (error || !fs::exists(folder_ + "/" + target.string(), error)) return std::nullopt;
  const int64_t step = step_of(target.string());
  if (step < 0) return std::nullopt;
  return step;
}

void Checkpoints::tidy(int64_t loaded_step) {
  if (ranks_ != nullptr && ranks_->rank() > 0) return;
  const std::string loaded = folder_ + "/" + step_name(loaded_step);
  mark_damaged_ones();
  std::error_code ignored;
  fs::remove(fs::path(loaded) / kDamagedMark, ignored);  // its files were put back
  const std::vector<std::string> folders = all();
  if (folders.empty() || folders.back() != loaded) return;
  remove_leftovers(folder_);
  link_copied_best();
  prune(loaded_step);
}

// What may be removed of the checkpoints up to a step, newest first: not the best one, and no
// milestone. Folders without a manifest are kept for inspection: they do not count, and their step
// may be saved again. Nor do those from after the newest: they are damaged, since the run went on
// from an earlier one.
std::vector<std::string> Checkpoints::removable(int64_t newest) const {
  std::vector<std::string> folders = all();
  const std::optional<int64_t> best = best_step();
  std::erase_if(folders, [&](const std::string& folder) {
    const int64_t step = step_of(fs::path(folder).filename().string());
    return step > newest || step == best || is_milestone(folder).value_or(true);
  });
  std::reverse(folders.begin(), folders.end());
  return folders;
}

int64_t Checkpoints::removed_by_next_save(int64_t loaded_step) const {
  const std::vector<std::string> folders = removable(loaded_step);
  const int64_t rolling = std::count_if(
      folders.begin(), folders.end(),
      [&](const std::string& folder) { return !is_by_time(folder) && !is_damaged(folder); });
  return std::max<int64_t>(0, rolling + 1 - keep_last_);
}

// A damaged one does not count, and goes when all that are kept are newer.
void Checkpoints::prune(int64_t newest) {
  const int64_t keep_last = std::max(keep_last_, keep_last_before_);
  int64_t rolling = 0;
  for (const std::string& folder : removable(newest)) {
    if (is_by_time(folder)) {
      if (folder != folder_ + "/" + step_name(newest)) remove_old(folder);
    } else if (rolling >= keep_last) {
      remove_old(folder);
    } else if (!is_damaged(folder)) {
      rolling += 1;
    }
  }
}

void Checkpoints::prune_after_save(int64_t step) {
  damaged_.erase(folder_ + "/" + step_name(step));
  keep_last_before_ = 0;
  prune(step);
}

void Checkpoints::remove_old(const std::string& folder) const {
  try {
    remove_checkpoint(folder);
  } catch (const UserError& error) {
    if (warn_) warn_(std::string("cannot remove an old checkpoint: ") + error.what());
  }
}

TrainingState load_state(const std::string& folder) {
  const TrainingState state = training_state(parse_file(folder + "/" + kCheckpointState));
  const int64_t named = step_of(fs::path(folder).filename().string());
  if (named >= 0 && named != state.step) {
    throw UserError(strprintf("%s has the state of step %ld", folder.c_str(), long(state.step)),
                    "give the folder the name that it was saved under");
  }
  return state;
}

std::string load_model(const std::string& folder, const std::vector<TensorRef>& model, Exec on) {
  return load_tensors(folder, TensorKind::kModel, model, on);
}

namespace {

struct Past {
  int64_t saved = 0;  // checkpoints
  int64_t steps = 0;
  std::string end;
};

// What the run's telemetry says of it; nothing if it cannot be read.
Past past_of(const std::string& run) {
  const std::string file = telemetry_file(run);
  std::error_code ignored;
  if (!fs::exists(file, ignored)) return {};
  try {
    const TelemetryReader telemetry(file);
    return {.saved = telemetry.events("checkpoint"),
            .steps = telemetry.steps_done(),
            .end = telemetry.end()};
  } catch (const UserError&) {
    return {};
  }
}

[[noreturn]] void refuse_without_checkpoint(const std::string& run) {
  const Past past = past_of(run);
  if (past.saved > 0) {
    throw UserError(
        strprintf("%s saved %ld checkpoints, but has none now", run.c_str(), long(past.saved)),
        "put the checkpoints back, or train the run again from the start: `assay train` with "
        "--fresh, which deletes it");
  }
  if (past.end == run_end_name(RunEnd::kNonFinite)) {
    throw UserError(
        strprintf("%s has no checkpoint: step %ld, or its loss, was not finite and ended it before "
                  "the first one",
                  run.c_str(), long(past.steps)),
        "train it again from the start with another configuration, e.g. a smaller "
        "optimizer.lr: `assay train` with --fresh");
  }
  throw UserError(run + " has no checkpoint yet",
                  "train it further: `assay train " + run + "/config.yaml --run " + run + "`");
}

// "step-00000060" for "step-60" or "60": the folder's name of a step as a person writes it. Another
// name as it is.
std::string whole_step_name(const std::string& name) {
  const std::string digits = name.starts_with("step-") ? name.substr(5) : name;
  const bool step = !digits.empty() && digits.size() < 16 &&
                    digits.find_first_not_of("0123456789") == std::string::npos;
  return step ? step_name(std::stoll(digits)) : name;
}

}  // namespace

std::string require_checkpoint(const std::string& run_or_checkpoint,
                               const Checkpoints::Warn& warn) {
  const fs::path path = fs::path(run_or_checkpoint).lexically_normal();
  fs::path named = path.has_filename() ? path : path.parent_path();  // "x/" is x
  if (named.filename() == kBest && fs::is_symlink(named)) {
    named = (named.parent_path() / fs::read_symlink(named)).lexically_normal();
  } else if (named.filename() == kBest) {
    if (const std::optional<int64_t> copied = step_of_copy(named.string()))
      named.replace_filename(step_name(*copied));
  }
  if (step_of(named.filename().string()) >= 0 && fs::is_directory(named)) {
    const std::string problem = checkpoint_problem(named.string());
    if (problem.empty()) return named.string();
    throw UserError(named.string() + " is damaged: " + problem,
                    "give the run to use its newest valid checkpoint");
  }
  if (const fs::path whole = named.parent_path() / whole_step_name(named.filename().string());
      whole != named && !fs::exists(named) && fs::is_directory(whole)) {
    throw UserError("no checkpoint at " + named.string(), "did you mean " + whole.string() + "?");
  }
  const std::string run = require_run(run_or_checkpoint).string();
  Checkpoints checkpoints(run, 1, warn);
  if (const std::optional<std::string> newest = checkpoints.newest()) return *newest;
  const std::vector<std::string> all = checkpoints.all();
  if (all.empty()) refuse_without_checkpoint(run);
  throw UserError(
      strprintf("none of the %zu checkpoints of %s is valid; %s: %s", all.size(), run.c_str(),
                all.back().c_str(), checkpoint_problem(all.back()).c_str()),
      "put back a copy of a checkpoint, or train the run again from the start: `assay "
      "train` with --fresh, which deletes it");
}

}  // namespace assay
