// What a matrix would do, shown by `assay matrix --dry-run`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lab/matrix/reuse.h"

namespace assay {

struct PlannedCell {
  const Cell* cell = nullptr;
  CellStatus status;
  int64_t checkpoints = 0;        // that its run has
  std::vector<std::string> also;  // names of the other cells with the same run
  std::string reuse;              // finished run elsewhere, to be copied; "" = the cell is trained
  std::string refused;            // why that run cannot be copied, if checked; "" = it can
  std::string hint;               // what to do about it
};

struct MatrixPlan {
  const Matrix* matrix = nullptr;
  std::vector<PlannedCell> runs;          // in starting order
  std::vector<const Cell*> unavailable;   // selected, but cannot be trained in their precision
  double flop_per_s = 0;                  // assumed training speed, for hours; 0 = not given
  std::vector<std::string> refused = {};  // why nothing would be trained, beside runs not copied
  bool fresh_changed = false;             // edited runs are trained again from their first step
  int64_t most_seeds = 0;                 // of --until-decided; 0 = it is not given
  std::optional<int64_t> free_disk = {};  // bytes that its folder's disk has left, if known
  // Runs if claims stay undecided up to most_seeds.
  int64_t most_runs() const;
  // Bytes that checkpoints of the runs that are left may take, beside those that are there: those
  // which runs keep, and what the largest has more while it trains, as often as runs train at once.
  int64_t checkpoint_bytes_left() const;
};

// Plans the selected cells; a waiting one may be reused. The matrix must outlive the plan.
MatrixPlan plan_matrix(const Matrix& matrix, const MatrixFolder& folder,
                       const std::vector<const Cell*>& selected, const Reusable& reusable = {});

// "partial (step 25, begins again)": where the cell's run stands, and what becomes of it.
std::string progress_text(const CellStatus& status);

// "checkpoints: up to 310 MiB more on disk, which has 5000 MiB free"; "" if none will be written.
std::string disk_text(const MatrixPlan& plan);

std::string plan_text(const MatrixPlan& plan);
std::string plan_json(const MatrixPlan& plan);

}  // namespace assay
