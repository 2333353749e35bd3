// Hashes the data of a matrix's cells, and checks the evidence of runs that it takes over from
// elsewhere (--reuse): their receipts, and their data, program and device beside those of this
// machine (lab/matrix/reuse.h).
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/plan.h"
#include "lab/matrix/reuse.h"
#include "lab/matrix/state.h"

namespace assay {

// Fills Cell::data of the cells whose run has begun, or of all: what a pattern of data.train
// matches may have changed since. Hashes come from the cache where the files have not changed.
enum class DataOf { kBegunRuns, kAllRuns };
void note_data(Matrix& matrix, const MatrixFolder& folder, DataOf which);

struct TakenRun {
  ReusableRun run;
  ReuseEvidence evidence;
};

// Before anything is copied. device: that of the matrix. UserError at the first run whose evidence
// fails.
std::vector<TakenRun> examine_runs(const std::string& device, ReuseEvidence::Elsewhere elsewhere,
                                   const std::vector<ReusableRun>& runs,
                                   const MatrixFolder& folder);

// The same for --dry-run: a refusal is noted at its run, and the remaining runs are checked too.
void examine_plan(MatrixPlan& plan, ReuseEvidence::Elsewhere elsewhere, const MatrixFolder& folder);

}  // namespace assay
