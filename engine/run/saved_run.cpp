#include "engine/run/saved_run.h"

#include <sqlite3.h>
#include <zstd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/joined.h"
#include "data/sha256.h"
#include "engine/config/text.h"

namespace assay {

namespace {

constexpr const char* kDataHashes = "data_sha256";  // by name
constexpr const char* kDataOrder = "data_order";    // hashes in order, by part
constexpr const char* kLastProbe = "router_probe";
constexpr const char* kSavedTrainSeconds = "train_s";
constexpr const char* kSavedCpuJoules = "cpu_joules";
constexpr const char* kSavedGpuJoules = "gpu_joules";
constexpr const char* kBestStep = "best_step";
constexpr const char* kBestLoss = "best_loss_nats";

// SHA-256 by file name; files of the same name get a number, in the order of their paths.
std::map<std::string, std::string> hashes_by_name(const std::vector<ReadFile>& files) {
  std::map<std::string, std::string> by_path;
  for (const ReadFile& file : files) by_path[file.path] = file.sha256;
  std::map<std::string, std::string> named;
  for (const auto& [path, hash] : by_path) {
    const std::string name = std::filesystem::path(path).filename().string();
    std::string key = name;
    for (int again = 2; named.contains(key); ++again)
      key = strprintf("%s (%d)", name.c_str(), again);
    named[key] = hash;
  }
  return named;
}

// A line of hashes by part, in the order in which the part's files are read.
std::map<std::string, std::string> hashes_in_order(const std::vector<ReadFile>& files) {
  std::map<std::string, std::string> lines;
  for (const ReadFile& file : files) {
    std::string& line = lines[file.part];
    line.append(line.empty() ? 0 : 1, ' ').append(file.sha256);
  }
  return lines;
}

std::vector<int32_t> parted(const std::string& text) {
  std::istringstream in(text);
  std::vector<int32_t> numbers;
  for (int32_t n; in >> n;) numbers.push_back(n);
  return numbers;
}

// What the checkpoint keeps under a name; `absent` without it.
template <typename V>
V extra_of(const TrainingState& state, const char* name, const V& absent) {
  try {
    return state.extra.value(name, absent);
  } catch (const nlohmann::json::exception& error) {
    throw UserError(strprintf("the checkpoint's %s is damaged: ", name) + error.what(),
                    "remove the checkpoint's folder to use the previous one");
  }
}

// Versions of the libraries that a run's files depend on.
std::map<std::string, std::string> library_versions() {
  return {
      {"sqlite", sqlite3_libversion()}, {"zstd", ZSTD_versionString()}, {"compiler", __VERSION__}};
}

}  // namespace

TrainingState state_to_save(const RunParts& parts, const RunProgress& progress) {
  TrainingState state;
  state.step = progress.steps_done;
  state.tokens = progress.steps_done * parts.config.run.batch_tokens;
  // Of the step, not of the loader: after an error of another rank it may have read one more batch.
  state.cursor = parts.loader.cursor_of(progress.steps_done);
  state.seed = static_cast<uint64_t>(parts.config.run.seed);
  state.schedule_share = progress.schedule_share;
  state.config_yaml = to_yaml(parts.config);
  state.config_hashes = section_hashes(parts.config);
  state.versions = library_versions();
  state.extra[kDataHashes] = hashes_by_name(parts.data);
  state.extra[kDataOrder] = hashes_in_order(parts.data);
  // A text takes one line in state.json; a JSON array would take one line per number.
  state.extra[kLastProbe] = joined(progress.last_probe, " ");
  for (const auto& [name, value] : {std::pair(kSavedTrainSeconds, progress.train_s),
                                    std::pair(kSavedCpuJoules, progress.energy.cpu_joules),
                                    std::pair(kSavedGpuJoules, progress.energy.gpu_joules)}) {
    if (std::isfinite(value)) state.extra[name] = value;
  }
  if (std::isfinite(progress.best.loss_nats)) {
    state.extra[kBestStep] = progress.best.step;
    state.extra[kBestLoss] = progress.best.loss_nats;
  }
  return state;
}

void forget_measured(TrainingState& state) {
  for (const char* const name : {kBestStep, kBestLoss, kLastProbe}) state.extra.erase(name);
}

std::vector<Slice> model_slices_to_save(RunParts& parts) {
  const std::vector<Slice> slices = parts.model.slices();
  if (parts.ranks == nullptr) return slices;
  std::map<std::string, std::vector<Slice>> owned;
  for (const Slice& s : parts.optimizer.master_slices()) owned[s.whole.name].push_back(s);
  std::vector<Slice> all;
  for (const Slice& slice : slices) {
    if (const auto found = owned.find(slice.whole.name); found != owned.end()) {
      all.insert(all.end(), found->second.begin(), found->second.end());
    } else {
      all.push_back(slice);
      if (!parts.ranks->layout.first()) all.back().count = 0;
    }
  }
  return all;
}

namespace {

constexpr const char* kOtherData =
    "give the data it began with, train in another --run, or use --fresh";

// UserError when a name stands for another content than before.
void require_same_names(const std::map<std::string, std::string>& before,
                        const std::vector<ReadFile>& now) {
  std::map<std::string, std::pair<std::string, std::string>> both;  // by name: before, now
  for (const auto& [name, hash] : before) both[name].first = hash;
  for (const auto& [name, hash] : hashes_by_name(now)) both[name].second = hash;
  const auto shown = [](const std::string& hash) {
    return hash.empty() ? std::string("no such file") : short_hash(hash);
  };
  for (const auto& [name, hashes] : both) {
    if (hashes.first == hashes.second) continue;
    const bool is_tokenizer = std::any_of(now.begin(), now.end(), [&](const ReadFile& file) {
      return file.part == kTokenizerPart && std::filesystem::path(file.path).filename() == name;
    });
    throw UserError("the data of the run has changed: " + name + " was " + shown(hashes.first) +
                        ", is " + shown(hashes.second),
                    is_tokenizer ? "put back the " + name +
                                       " it began with, byte for byte, train in another --run, "
                                       "or use --fresh"
                                 : kOtherData);
  }
}

// Every name has its content, but files are read in another order, or in another part.
[[noreturn]] void throw_other_order(const std::map<std::string, std::string>& before,
                                    const std::vector<ReadFile>& now) {
  std::map<std::string, std::istringstream> left;  // by part
  for (const auto& [part, line] : before) left[part].str(line);
  std::map<std::string, int> place;
  for (const ReadFile& file : now) {
    ++place[file.part];
    std::string hash;
    left[file.part] >> hash;
    if (hash == file.sha256) continue;
    const auto named = std::find_if(now.begin(), now.end(),
                                    [&](const ReadFile& other) { return other.sha256 == hash; });
    throw UserError(
        strprintf("the data of the run has another order: file %d of %s is %s, was %s",
                  place[file.part], file.part.c_str(), file.path.c_str(),
                  hash.empty()         ? "none"
                  : named == now.end() ? short_hash(hash).c_str()
                                       : named->path.c_str()),
        "the order of the files' paths, and of the sources of a mixture, decides the batches: give "
        "them as when it began, train in another --run, or use --fresh");
  }
  throw UserError("the data of the run has changed: files that it read are missing", kOtherData);
}

}  // namespace

void require_same_data(const TrainingState& state, const std::vector<ReadFile>& now) {
  if (!state.extra.contains(kDataHashes)) return;  // a new run
  const std::map<std::string, std::string> none;
  const auto names = extra_of(state, kDataHashes, none);
  if (!state.extra.contains(kDataOrder)) return require_same_names(names, now);
  const auto order = extra_of(state, kDataOrder, none);
  if (order == hashes_in_order(now)) return;
  require_same_names(names, now);
  throw_other_order(order, now);
}

bool has_tokenizer(const TrainingState& state, const std::vector<std::string>& paths) {
  const std::map<std::string, std::string> none;
  if (state.extra.contains(kDataOrder)) {
    return extra_of(state, kDataOrder, none).contains(kTokenizerPart);
  }
  const auto names = extra_of(state, kDataHashes, none);
  return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
    return names.contains(std::filesystem::path(path).filename().string());
  });
}

std::string first_unknown_file(const TrainingState& state,
                               const std::map<std::string, std::string>& some) {
  if (!state.extra.contains(kDataHashes)) return "";
  std::set<std::string> known;
  for (const auto& [name, hash] :
       extra_of(state, kDataHashes, std::map<std::string, std::string>())) {
    known.insert(hash);
  }
  for (const auto& [path, hash] : some) {
    if (!known.contains(hash)) return path;
  }
  return "";
}

void require_known_data(const TrainingState& state,
                        const std::map<std::string, std::string>& some) {
  const std::string path = first_unknown_file(state, some);
  if (path.empty()) return;
  throw UserError("the data of the run has changed: " + path + " is " + short_hash(some.at(path)) +
                      ", which the run has not read",
                  "give the data it began with");
}

RunStart resume_or_initialise(RunParts& parts, const std::optional<std::string>& checkpoint) {
  if (!checkpoint) {
    parts.model.initialise(parts.on, static_cast<uint64_t>(parts.config.run.seed));
    parts.model.refresh_weights(parts.on);
    return {};
  }
  const TrainingState state = load_state(*checkpoint);
  // Every rank has all masters but those of other ranks' experts, and the moments of what it owns.
  std::string not_finite = load_slices(*checkpoint, TensorKind::kModel, parts.model.slices(),
                                       Others::kRefused, parts.on);
  const std::string moment = load_slices(*checkpoint, TensorKind::kOptimizer,
                                         parts.optimizer.slices(), Others::kIgnored, parts.on);
  if (not_finite.empty()) not_finite = moment;
  parts.model.refresh_weights(parts.on);
  parts.loader.seek(state.cursor);
  const double absent =
      state.step == 0 ? 0 : std::nan("");  // an imported model has trained for 0 s
  return {.steps_done = state.step,
          .last_probe = parted(extra_of(state, kLastProbe, std::string())),
          .train_s = extra_of(state, kSavedTrainSeconds, absent),
          .energy = {.cpu_joules = extra_of(state, kSavedCpuJoules, absent),
                     .gpu_joules = extra_of(state, kSavedGpuJoules, absent)},
          .best = {.step = extra_of(state, kBestStep, BestLoss{}.step),
                   .loss_nats = extra_of(state, kBestLoss, BestLoss{}.loss_nats)},
          .not_finite = not_finite};
}

}  // namespace assay
