#include "lab/matrix/state.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include "base/check.h"
#include "base/file.h"
#include "base/read_failed.h"
#include "base/utc.h"
#include "data/json_text.h"
#include "engine/config/text.h"
#include "engine/config/yaml.h"
#include "engine/run/checkpoint_files.h"
#include "engine/run/folder_lock.h"
#include "engine/run/run.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/reader.h"
#include "lab/matrix/edits_text.h"
#include "models/audit/horizon.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

std::vector<MatrixClaim> claims_in(const ordered_json& manifest) {
  std::vector<MatrixClaim> claims;
  for (const ordered_json& claim : manifest.at("claims")) claims.push_back(claim_of_json(claim));
  return claims;
}

bool has_seal(const ordered_json& manifest) {
  return manifest.is_object() && manifest.contains("claims") && manifest.contains("claims_seal");
}

std::vector<int64_t> extra_seeds_in(const ordered_json& manifest) {
  if (!manifest.is_object() || !manifest.contains("extra_seeds")) return {};
  return manifest["extra_seeds"].get<std::vector<int64_t>>();
}

// null if there is no readable manifest. UserError if its claims are not those of its seal.
ordered_json read_manifest(const MatrixFolder& folder) {
  auto manifest = json_in_file<ordered_json>(folder.file(kMatrixRecord));
  if (!manifest.is_object() || !manifest.contains("cells") || !manifest["cells"].is_array()) {
    return {};
  }
  require_whole_record(folder.file(kMatrixRecord), manifest);
  return manifest;
}

// But for what a process leaves that is killed before it has written the record of a matrix.
bool holds_files(const std::string& path) {
  const std::string part = std::string(kMatrixRecord) + ".part";
  for (const std::string& name : names_in(path)) {
    if (name != kFolderLock && name != part) return true;
  }
  return false;
}

ordered_json cell_json(const Cell& cell) {
  ordered_json j;
  j["cell"] = cell.name;
  j["model"] = cell.model;
  j["contract"] = cell.contract;
  j["precision"] = cell.precision;
  j["seed"] = cell.seed;
  j["run"] = cell.run;
  j["steps"] = cell.known_steps ? ordered_json(cell.steps()) : ordered_json();
  j["tokens"] = cell.known_steps ? ordered_json(cell.tokens()) : ordered_json();
  j["config_sha256"] = config_sha256(cell.config);
  if (!cell.unavailable.empty()) j["unavailable"] = cell.unavailable;
  return j;
}

// Runs in the folder that have begun, and those of them that are done. Those of removed cells have
// been seen too, so they count.
struct RunCounts {
  int64_t begun = 0, finished = 0;
  std::optional<UserError> unread;  // of one that may be finished
};
RunCounts count_runs(const MatrixFolder& folder, const Matrix& matrix) {
  RunCounts counts;
  const auto count = [&](const CellStatus& status) {
    counts.finished += status.state == CellState::kDone ? 1 : 0;
    if (status.unread) counts.unread = status.unread;
  };
  std::set<std::string> names;
  for (const Cell& cell : matrix.cells) {
    if (!cell.trained()) continue;
    names.insert(cell.run);
    const CellStatus status = folder.status(cell);
    counts.begun += status.state == CellState::kWaiting ? 0 : 1;
    count(status);
  }
  for (const std::string& name : names_in(folder.path())) {
    std::error_code ignored;
    if (names.contains(name) || fs::path(name).extension() == kIncompleteCopy ||
        !fs::exists(folder.file(name + "/config.yaml"), ignored)) {
      continue;
    }
    counts.begun += 1;
    try {
      Cell own;
      own.config = load_config(folder.file(name + "/config.yaml"));
      count(run_status(folder.file(name), own));
    } catch (const ReadFailed&) {
      throw;
    } catch (const UserError&) {  // its configuration is damaged, or of another version
    }
  }
  return counts;
}

// The seal of the claims now: made anew as long as no run has begun.
ClaimSeal next_seal(const MatrixFolder& folder, const Matrix& matrix, const ordered_json& before,
                    const MatrixEdits& edits, int64_t reused_runs) {
  const ClaimChanges& changes = edits.claims;
  const RunCounts runs = count_runs(folder, matrix);
  const std::string sha256 = claims_sha256(matrix.file.claims);
  if (!has_seal(before) || runs.begun == 0) {
    return {
        .time = utc_now(), .sha256 = sha256, .runs_begun = runs.begun + reused_runs, .edits = {}};
  }
  ClaimSeal seal = seal_of_json(before["claims_seal"]);
  seal.sha256 = sha256;
  if (changes.any()) {
    if (runs.unread) throw *runs.unread;  // the record of the edit has the number of finished runs
    seal.edits.push_back({.time = utc_now(),
                          .runs_finished = runs.finished,
                          .added = changes.added,
                          .removed = changes.removed});
  }
  if (edits.any() && runs.finished > 0) {
    seal.cell_edits.push_back(
        {.time = utc_now(), .runs_finished = runs.finished, .what = cells_edit_text(edits)});
  }
  return seal;
}

// All files of its manifest are there in their size. Their hashes are left to the run, which takes
// an older checkpoint where one is damaged.
bool looks_whole(const std::string& checkpoint) {
  try {
    for (const auto& [name, written] : read_checkpoint_manifest(checkpoint).files) {
      std::error_code missing;
      const auto bytes = fs::file_size(fs::path(checkpoint) / name, missing);
      if (missing || static_cast<int64_t>(bytes) != written.bytes) return false;
    }
    return true;
  } catch (const UserError&) {
    return false;
  }
}

// The step of the newest whole checkpoint; 0 if there is none.
int64_t newest_saved_step(const fs::path& run) {
  const fs::path checkpoints = run / "checkpoints";
  std::error_code ignored;
  if (!fs::is_directory(checkpoints, ignored)) return 0;
  std::vector<int64_t> steps;
  for (const std::string& name : names_in(checkpoints.string())) steps.push_back(step_of(name));
  std::sort(steps.rbegin(), steps.rend());
  for (const int64_t step : steps) {
    if (step > 0 && looks_whole((checkpoints / step_name(step)).string())) return step;
  }
  return 0;
}

// Why `assay train` would not begin a run in a folder without a config.yaml.
std::optional<UserError> why_blocked(const std::string& run) {
  try {
    require_run_or_empty(run);
    return std::nullopt;
  } catch (const ReadFailed& error) {
    return error;
  } catch (const UserError& error) {
    return UserError(error.what(), "put its config.yaml back if a run is in it, or move it away");
  }
}

bool same_collapse_stop(const Config& a, const Config& b) {
  const auto only_rule = [](const Config& config) {
    Config c;
    c.telemetry.collapse_stop = config.telemetry.collapse_stop;
    return to_yaml(c);
  };
  return only_rule(a) == only_rule(b);
}

}  // namespace

void require_whole_record(const std::string& path, const nlohmann::ordered_json& record) {
  std::optional<ClaimSeal> seal;
  std::string claims;
  try {
    extra_seeds_in(record);
    if (has_seal(record)) {
      claims = claims_sha256(claims_in(record));
      seal = seal_of_json(record["claims_seal"]);
    }
  } catch (const ordered_json::exception&) {
    throw damaged_record(path);
  }
  if (!seal || seal->sha256 == claims) return;
  throw UserError(path + ": its claims are not those that were sealed " + seal->time,
                  "the file was edited; restore it, or train the matrix in another folder");
}

UserError damaged_record(const std::string& path) {
  return UserError(path + " is damaged: it is not the record of a matrix",
                   "move it away, and assay matrix FILE writes it anew, without the history of its "
                   "claims; the runs beside it are intact");
}

const char* cell_state_name(CellState state) {
  switch (state) {
    case CellState::kWaiting:
      return "waiting";
    case CellState::kPartial:
      return "partial";
    case CellState::kDone:
      return "done";
    case CellState::kGuard:
      return "stopped";
    case CellState::kUnavailable:
      return "unavailable";
  }
  return "?";
}

namespace {

// Whether the run has all landings of the cell, and more: those of branches that were taken out of
// the matrix, say. A landing is a validation and a checkpoint; where a target loss ends the run at
// a validation, it also changes where.
bool has_more_landings(const Config& run, const Config& cell) {
  const std::vector<double> has = landing_fractions(run.contract),
                            wanted = landing_fractions(cell.contract);
  return run.run.target_loss == 0 &&
         std::includes(has.begin(), has.end(), wanted.begin(), wanted.end());
}

// All of the status but what a partial run has saved.
CellStatus recorded_status(const std::string& run, const Cell& cell) {
  CellStatus status;
  if (!cell.unavailable.empty()) {
    status.state = CellState::kUnavailable;
    return status;
  }
  const fs::path folder = run;
  std::error_code ignored;
  if (!fs::exists(folder / "config.yaml", ignored)) {
    status.blocked = why_blocked(run);
    return status;
  }
  status.state = CellState::kPartial;
  const Config config = load_config((folder / "config.yaml").string());
  status.differences = matrix_differences(config, cell.config);
  if (auto data = data_change(data_hashes_of(run), cell.data))
    status.differences.push_back(std::move(*data));
  if (!fs::exists(folder / "telemetry.db", ignored)) return status;  // killed before its first step
  // Before it is read, which may make these files.
  const bool unclosed = fs::exists(folder / "telemetry.db-wal", ignored) ||
                        fs::exists(folder / "telemetry.db-shm", ignored);
  bool validated = false;
  try {
    const TelemetryReader telemetry((folder / "telemetry.db").string());
    status.steps_done = telemetry.steps_done();
    status.end = telemetry.end();
    // Older versions did not validate a last step that was made by a process that was to do more.
    validated = telemetry.last_step().value_or(0) >= status.steps_done ||
                telemetry.has_eval(status.steps_done, "val");
  } catch (const NotTelemetry&) {
    return status;  // killed while it was made
  } catch (const UserError& error) {
    status.unread = error;
    return status;
  }
  const bool other_rule = !same_collapse_stop(config, cell.config);
  if (stopped_by_guard(status.end) && !(status.end == "collapse_stop" && other_rule)) {
    status.state = CellState::kGuard;
  }
  const bool whole = status.end == "steps" && status.steps_done >= config.run.steps && validated;
  if (whole || status.end == "target_loss") status.state = CellState::kDone;
  const bool ended = status.state != CellState::kPartial;
  if (ended && has_more_landings(config, cell.config)) {
    std::erase_if(status.differences,
                  [](const FieldDifference& d) { return d.field == "contract.landings"; });
  }
  status.unclosed = unclosed;
  return status;
}

}  // namespace

CellStatus run_status(const std::string& run, const Cell& cell) {
  CellStatus status = recorded_status(run, cell);
  if (status.state != CellState::kPartial) return status;
  try {
    status.saved = newest_saved_step(run);
  } catch (const UserError& error) {
    if (!status.unread) status.unread = error;
  }
  // A branch begins with a checkpoint of its trunk.
  status.telemetry_lost =
      !status.unread && status.steps_done == 0 && status.saved > cell.branch_step;
  status.trained = status.telemetry_lost && cell.known_steps && status.saved >= cell.steps();
  return status;
}

void MatrixFolder::write_config(const Cell& cell) const {
  const std::string path = config(cell);
  const std::string text = to_yaml(cell.config);
  std::error_code ignored;
  if (fs::exists(path, ignored) && read_regular_file(path) == text) return;
  make_folders(file("configs"));
  write_file_atomic(path, text);
}

void prefer_existing_runs(Matrix& matrix, const MatrixFolder& folder) {
  std::map<std::string, std::string> run_of;  // run as laid out -> run used
  const auto has_run = [&](const std::string& cell) {
    std::error_code ignored;
    return fs::exists(folder.file(cell + "/config.yaml"), ignored);
  };
  for (const Cell& cell : matrix.cells) {
    std::string& run = run_of.try_emplace(cell.run, cell.run).first->second;
    if (!has_run(run) && has_run(cell.name)) run = cell.name;
  }
  for (Cell& cell : matrix.cells) {
    cell.run = run_of[cell.run];
    if (!cell.trunk.empty()) cell.trunk = run_of.at(cell.trunk);
  }
}

namespace {

// Of a cell that has not begun: its configuration in the folder, if it is the one of this hash,
// against the one of now.
std::vector<FieldDifference> changes_of_waiting(const MatrixFolder& folder, const Cell& cell,
                                                const std::string& sha256) {
  try {
    const Config before = load_config(folder.config(cell));
    if (is_config_sha256(sha256, before)) return matrix_differences(before, cell.config);
  } catch (const UserError&) {  // it was not written, or is of another version
  }
  return {};
}

// nullopt if the manifest is of an earlier version.
std::optional<std::vector<std::string>> missing_sets(const ordered_json& manifest,
                                                     const MatrixFile& file) {
  if (!manifest.is_object() || !manifest.contains("sets") || !manifest["sets"].is_array())
    return std::nullopt;
  std::vector<std::string> missing;
  for (const ordered_json& set : manifest["sets"]) {
    if (!set.is_string()) continue;
    const std::string text = set.get<std::string>();
    if (std::none_of(file.sets.begin(), file.sets.end(),
                     [&](const ConfigChange& given) { return given.set == text; }))
      missing.push_back(text);
  }
  return missing;
}

// The --set of now. While runs differ that were trained with others, those too, before them: they
// stay what such runs have been given. null where an earlier version recorded none of these runs.
ordered_json sets_json(const MatrixFile& file, const MatrixEdits& edits) {
  ordered_json sets = ordered_json::array();
  if (edits.started && !edits.changed.empty()) {
    if (!edits.missing_sets) return {};
    sets = *edits.missing_sets;
  }
  for (const ConfigChange& change : file.sets) sets.push_back(change.set);
  return sets;
}

}  // namespace

MatrixEdits find_edits(const MatrixFolder& folder, const Matrix& matrix) {
  MatrixEdits edits;
  const ordered_json manifest = read_manifest(folder);
  std::error_code ignored;
  if (fs::exists(folder.path(), ignored) && !fs::is_directory(folder.path(), ignored)) {
    throw UserError(folder.path() + " is a file, not the folder of a matrix",
                    "choose another --run-dir");
  }
  if (manifest.is_null() && holds_files(folder.path()) &&
      !fs::exists(folder.file("configs"), ignored)) {
    throw UserError(folder.path() + " has files but no matrix in it",
                    "choose another --run-dir, or an empty folder");
  }
  const std::string name = text_or_empty(manifest, "matrix");
  if (!name.empty() && name != matrix.file.name) {
    throw UserError(folder.path() + " holds the matrix " + name + ", not " + matrix.file.name,
                    "choose another --run-dir, or another name");
  }
  edits.started = !manifest.is_null();
  edits.missing_sets = missing_sets(manifest, matrix.file);
  edits.derived_steps = std::any_of(matrix.cells.begin(), matrix.cells.end(), [](const Cell& cell) {
    return !takes_run_steps(cell.config.contract.kind);
  });
  std::map<std::string, std::string> before;  // cell -> config_sha256
  if (edits.started) {
    for (const ordered_json& cell : manifest["cells"]) {
      before[text_or_empty(cell, "cell")] = text_or_empty(cell, "config_sha256");
    }
  }
  // Seeds that --until-decided has just added are no edit of the file.
  const std::vector<int64_t> recorded = extra_seeds_in(manifest);
  const auto is_in = [](const std::vector<int64_t>& seeds, int64_t seed) {
    return std::find(seeds.begin(), seeds.end(), seed) != seeds.end();
  };
  for (const Cell& cell : matrix.cells) {
    const auto was = before.find(cell.name);
    const bool own = is_in(matrix.file.extra_seeds, cell.seed) && !is_in(recorded, cell.seed);
    if (edits.started && was == before.end() && !own) edits.added.push_back(cell.name);
    const bool other_hash = was != before.end() && !is_config_sha256(was->second, cell.config);
    const std::string recorded_sha256 = was != before.end() ? was->second : "";
    if (was != before.end()) before.erase(was);
    if (!cell.trained()) continue;
    const CellStatus status = folder.status(cell);
    if (!status.differences.empty()) {
      edits.changed_cells.push_back(cell.name);
      const bool ended = status.state == CellState::kDone || status.state == CellState::kGuard;
      edits.finished += ended ? 1 : 0;
    } else if (status.state != CellState::kWaiting) {
      edits.unchanged += 1;
    }
    for (const FieldDifference& one : status.differences) {
      edits.changed.push_back({.cell = cell.name, .what = one});
    }
    if (other_hash && status.differences.empty() && status.state == CellState::kWaiting) {
      edits.moved.push_back(cell.name);
      for (FieldDifference& one : changes_of_waiting(folder, cell, recorded_sha256))
        edits.moved_changes.push_back({.cell = cell.name, .what = std::move(one)});
    }
  }
  for (const auto& [cell, hash] : before) edits.removed.push_back(cell);
  if (has_seal(manifest) && count_runs(folder, matrix).begun > 0) {
    edits.claims = claim_changes(claims_in(manifest), matrix.file.claims);
  }
  return edits;
}

std::optional<ClaimSeal> recorded_seal(const MatrixFolder& folder) {
  const ordered_json manifest = read_manifest(folder);
  if (!has_seal(manifest)) return std::nullopt;
  return seal_of_json(manifest["claims_seal"]);
}

std::vector<int64_t> recorded_extra_seeds(const MatrixFolder& folder) {
  return extra_seeds_in(read_manifest(folder));
}

void write_matrix(const MatrixFolder& folder, const Matrix& matrix, const MatrixEdits& edits,
                  int64_t reused_runs) {
  const ordered_json before = read_manifest(folder);
  ordered_json j;
  j["matrix"] = matrix.file.name;
  j["file"] = fs::absolute(matrix.file.path).lexically_normal().string();
  j["started"] = before.is_object() && before.contains("started") ? before["started"]
                                                                  : ordered_json(utc_now());
  j["contracts"] = ordered_json::array();
  for (const MatrixContract& contract : matrix.file.contracts) {
    ordered_json c;
    c["name"] = contract.name;
    c["kind"] = contract.kind_text();
    c["coefficient"] = contract.coefficient;
    c["reference"] = contract.reference;
    c["fraction"] = contract.fraction;
    if (!contract.branch_of.empty()) c["branch_of"] = contract.branch_of;
    if (!contract.shared_in_total) c["shared_in_total"] = false;
    j["contracts"].push_back(c);
  }
  j["sets"] = sets_json(matrix.file, edits);
  j["extra_seeds"] = matrix.file.extra_seeds;
  j["claims"] = ordered_json::array();
  for (const MatrixClaim& claim : matrix.file.claims) j["claims"].push_back(claim_to_json(claim));
  j["claims_seal"] = seal_to_json(next_seal(folder, matrix, before, edits, reused_runs));
  j["cells"] = ordered_json::array();
  for (const Cell& cell : matrix.cells) j["cells"].push_back(cell_json(cell));
  j["edits"] =
      before.is_object() && before.contains("edits") ? before["edits"] : ordered_json::array();
  if (edits.started && edits.any()) {
    ordered_json edit;
    edit["time"] = utc_now();
    edit["added"] = edits.added;
    edit["removed"] = edits.removed;
    edit["changed"] = ordered_json::array();
    for (const CellDifference& one : edits.changed) edit["changed"].push_back(one.text());
    edit["changed_before_they_began"] = edits.moved;
    j["edits"].push_back(edit);
  }
  const std::string text = json_text(j, 2) + "\n";
  write_file_atomic(folder.file(kMatrixRecord), text);
}

}  // namespace assay
