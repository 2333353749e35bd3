// State of a matrix, read from its folder:
//
//   runs/<matrix>/matrix.json          the matrix as it was started, and its edits since
//   runs/<matrix>/configs/<cell>.yaml  configuration for `assay train`
//   runs/<matrix>/logs/<cell>.log      its output
//   runs/<matrix>/<cell>/              its run
//   runs/<matrix>/summary.{md,csv,json}, runs.csv, receipt.json
//
// Progress follows from the runs alone, so the process may be killed at any time; matrix.json only
// records edits.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/matrix/matrix.h"
#include "lab/matrix/seal.h"

namespace assay {

constexpr const char* kMatrixRecord = "matrix.json";
constexpr const char* kIncompleteCopy = ".part";  // ends the name of a run that is being copied

enum class CellState {
  kWaiting,      // not begun
  kPartial,      // begun; continues from its last checkpoint, or begins again without one
  kDone,         // ended by its steps or its target
  kGuard,        // stopped by a guard that the cell still has; restarting would hit it again
  kUnavailable,  // this version cannot train it
};
// "waiting", "partial", "done", "stopped", "unavailable".
const char* cell_state_name(CellState state);

struct CellStatus {
  CellState state = CellState::kWaiting;
  int64_t steps_done = 0;  // by its telemetry
  // Of a partial run: the step of its newest whole checkpoint, from which it resumes; 0 = it has
  // none and begins again.
  int64_t saved = 0;
  // It has made steps (`saved`) of which its telemetry.db has nothing: the file is gone or emptied.
  bool telemetry_lost = false;
  bool trained = false;  // with telemetry_lost: `saved` is its last step
  std::string end;       // of the last launch
  // Its telemetry.db was not closed: the process was killed, or could not write, at the very end.
  bool unclosed = false;
  // Why its telemetry.db or its folder of checkpoints cannot be read (damaged, held, a failing
  // disk): it is unknown how far the run is.
  std::optional<UserError> unread;
  // Why a waiting cell cannot begin: its folder has files, but no run that could go on.
  std::optional<UserError> blocked;
  // What the existing run differs in from the cell: fields of the configuration, and a file of the
  // data (data_change()).
  std::vector<FieldDifference> differences;

  // Steps that the next launch does not make again.
  int64_t kept() const { return state == CellState::kPartial ? saved : steps_done; }
};

// Status of the run in folder `run`, taken as the run of `cell`.
CellStatus run_status(const std::string& run, const Cell& cell);

class MatrixFolder {
 public:
  explicit MatrixFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Paths of the cell's run; several cells may share one run.
  std::string run(const Cell& cell) const { return file(cell.run); }
  std::string config(const Cell& cell) const { return file("configs/" + cell.run + ".yaml"); }
  std::string log(const Cell& cell) const { return file("logs/" + cell.run + ".log"); }

  CellStatus status(const Cell& cell) const { return run_status(run(cell), cell); }
  // Rewrites the file only if its text changes.
  void write_config(const Cell& cell) const;

 private:
  std::string path_;
};

// Among cells that share a run, selects the one whose run is already in the folder, so that
// contracts may be added in any order.
void prefer_existing_runs(Matrix& matrix, const MatrixFolder& folder);

// What a cell differs in from the run, or the configuration, that is in the folder.
struct CellDifference {
  std::string cell;
  FieldDifference what;
  std::string text() const { return cell + ": " + what.text(); }
};

// Edits since the matrix was started. Cells by name.
struct MatrixEdits {
  bool started = false;                 // false: there was no matrix in the folder
  std::vector<std::string> added;       // but for those of seeds that --until-decided adds
  std::vector<std::string> removed;     // kept on the disk
  std::vector<CellDifference> changed;  // of cells with a run
  std::vector<std::string> changed_cells;
  int64_t finished = 0;            // of changed_cells: done, or stopped by a guard
  int64_t unchanged = 0;           // cells whose run has begun and is theirs
  std::vector<std::string> moved;  // changed before they began
  // As `changed`, of moved cells whose recorded configuration is still in the folder.
  std::vector<CellDifference> moved_changes;
  // --set of matrix.json that are not given now; nullopt: an earlier version recorded none.
  std::optional<std::vector<std::string>> missing_sets;
  bool derived_steps = false;  // a contract gives cells their steps, whatever run.steps is set to
  // Of claims that were recorded, if a run has begun since.
  ClaimChanges claims;
  bool any() const {
    return !(added.empty() && removed.empty() && changed.empty() && moved.empty());
  }
};
// UserError if the folder has files but no matrix, or a matrix of another name.
MatrixEdits find_edits(const MatrixFolder& folder, const Matrix& matrix);

// The seal of the claims in matrix.json; nullopt without a matrix, or if an earlier version wrote
// it.
std::optional<ClaimSeal> recorded_seal(const MatrixFolder& folder);

// UserError if a record read from `path` has other claims than were sealed, or is damaged.
void require_whole_record(const std::string& path, const nlohmann::ordered_json& record);
UserError damaged_record(const std::string& path);

// Seeds in matrix.json that undecided claims added.
std::vector<int64_t> recorded_extra_seeds(const MatrixFolder& folder);

// Writes matrix.json, with the edits added to its history and to that of the claims. While there
// are `changed` runs it keeps the --set that they were trained with. reused_runs:
// finished ones of elsewhere that are going to be copied, which the claims may have been made for.
void write_matrix(const MatrixFolder& folder, const Matrix& matrix, const MatrixEdits& edits,
                  int64_t reused_runs = 0);

}  // namespace assay
