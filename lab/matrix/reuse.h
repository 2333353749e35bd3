// Reuses finished runs of other folders for cells of a matrix, so that no run is trained twice. The
// run must have the cell's configuration (config_sha256), a receipt that verifies, the cell's data
// by hash, and the program and device that train the other cells. The whole run is copied into the
// folder of the matrix, with reused.json added; from then on it is a run like any other.
//
//   for (const ReusableRun& r : find_reusable(selected, own, folders).runs) {
//     require_room(r, own);
//     require_evidence(r, evidence);
//     take_over(r, own, evidence);
//   }
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/state.h"
#include "lab/receipt/verify.h"

namespace assay {

struct ReusableRun {
  const Cell* cell = nullptr;
  std::string run;  // folder
};

struct Reusable {
  std::vector<ReusableRun> runs;
  std::vector<std::string> unfinished;  // "runs/a/moe-steps-bf16-seed1: partial, step 40 of 60"
};

// For each waiting cell the first finished run with its configuration, of several one with its data
// (Cell::data). folders: each of a matrix, this one too, or of one run; a folder whose runs were
// copied before may be gone. UserError: a folder without runs, or no run of a folder fits a waiting
// cell; the message names the cell and the run that differ least, and a differing field.
Reusable find_reusable(const std::vector<const Cell*>& cells, const MatrixFolder& own,
                       const std::vector<std::string>& folders);

// Runs of the matrix's own folder that fit waiting cells: those of cells that were renamed or
// changed.
std::vector<ReusableRun> reusable_within(const std::vector<const Cell*>& cells,
                                         const MatrixFolder& own);

struct ReuseEvidence {
  VerifyOptions program;
  DataHashes data;     // the cell's
  std::string device;  // on which the cell would be trained, as RunRecord::device
  enum class Elsewhere { kRefuse, kAccept } elsewhere = Elsewhere::kRefuse;  // build or device
};

// UserError: no receipt, a receipt that does not verify, other data, imported weights, a
// configuration that changed between launches, another build of the program, another device (or a
// CPU with other instructions that decide the bits), or a run in use.
void require_evidence(const ReusableRun& reusable, const ReuseEvidence& evidence);

// UserError: the destination holds files that are not a run, or another process uses it.
void require_room(const ReusableRun& reusable, const MatrixFolder& folder);

// Copies the run, completely or not at all; files of checkpoints are linked if the file system
// permits. Checks the evidence of the copy again, because the run may have changed meanwhile.
// Returns the other devices that trained the run, "" if none.
std::string take_over(const ReusableRun& reusable, const MatrixFolder& folder,
                      const ReuseEvidence& evidence);

// Removes copies that a process left incomplete. The caller holds the lock of the folder.
void remove_incomplete_copies(const Matrix& matrix, const MatrixFolder& folder);

}  // namespace assay
