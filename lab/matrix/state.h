// Where a matrix stands, read from its folder:
//
//   runs/<matrix>/matrix.json          the matrix as it was started, and how it was edited since
//   runs/<matrix>/configs/<cell>.yaml  what `assay train` is given
//   runs/<matrix>/logs/<cell>.log      what it said
//   runs/<matrix>/<cell>/              its run
//   runs/<matrix>/summary.{md,csv,json}, runs.csv, receipt.json
//
// What is done follows from the runs alone, so that the process may be killed at any time;
// matrix.json only tells what was edited.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/matrix/matrix.h"

namespace assay {

enum class CellState {
  kWaiting,  // not begun
  kPartial,  // begun, goes on where it stopped
  kDone,     // ended by its steps or its target
  kGuard,    // stopped by its own guard, and the cell has the same guard: the same would come again
  kUnavailable,  // this version cannot train it
};
const char* cell_state_name(
    CellState state);  // "waiting", "partial", "done", "stopped", "unavailable"

struct CellStatus {
  CellState state = CellState::kWaiting;
  int64_t steps_done = 0;
  std::string end;  // of the last launch
  // How the run that is there differs from the cell: not empty when it is the run of another
  // configuration.
  std::vector<std::string> differences;
};

// Of the run in this folder, as that of the cell.
CellStatus run_status(const std::string& run, const Cell& cell);

class MatrixFolder {
 public:
  explicit MatrixFolder(std::string path) : path_(std::move(path)) {}

  const std::string& path() const { return path_; }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  // Of the cell's run: for a cell that coincides with another one, of that one.
  std::string run(const Cell& cell) const { return file(cell.run); }
  std::string config(const Cell& cell) const { return file("configs/" + cell.run + ".yaml"); }
  std::string log(const Cell& cell) const { return file("logs/" + cell.run + ".log"); }

  CellStatus status(const Cell& cell) const { return run_status(run(cell), cell); }
  // Written anew only where it says something else.
  void write_config(const Cell& cell) const;

 private:
  std::string path_;
};

// Of cells that are the same run, the one whose run is in the folder already is trained, so that
// contracts may be added in any order.
void prefer_existing_runs(Matrix& matrix, const MatrixFolder& folder);

// What was edited since the matrix was started. Cells by name.
struct MatrixEdits {
  bool started = false;  // false: there was no matrix in the folder
  std::vector<std::string> added;
  std::vector<std::string> removed;  // kept on the disk
  std::vector<std::string>
      changed;  // "CELL: optimizer.lr: 0.001 -> 0.002", of cells that have a run
  std::vector<std::string> changed_cells;
  std::vector<std::string> moved;  // changed before they began
  bool any() const {
    return !(added.empty() && removed.empty() && changed.empty() && moved.empty());
  }
};
// UserError when the folder has files but no matrix, or the matrix of another name.
MatrixEdits find_edits(const MatrixFolder& folder, const Matrix& matrix);

// matrix.json, with the edits added to its history.
void write_matrix(const MatrixFolder& folder, const Matrix& matrix, const MatrixEdits& edits);

}  // namespace assay
