// Finished runs of other folders that stand in for cells of a matrix, so that no run is trained
// twice: the configuration is the cell's (config_sha256), and before it is taken the receipt
// verifies, the data is the cell's by hash, and the program and the device are those that will
// train the other cells. The run is copied into the folder of the matrix, whole, with reused.json
// in it; from then on it is a run like any other.
//
//   for (const ReusableRun& r : find_reusable(selected, own, folders).runs) {
//     require_room(r, own);
//     require_evidence(r, evidence);
//     take_over(r, own, evidence);
//   }
#pragma once

#include <map>
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

// For each of the waiting cells the first finished run with its configuration. folders: of a
// matrix, or of one run; what the cells took from them before stays, also when the folder is gone.
// UserError: a folder without runs, the matrix's own folder, or none of a folder's runs is a
// waiting cell's; it names the cell and the run that differ least, and in what.
Reusable find_reusable(const std::vector<const Cell*>& cells, const MatrixFolder& own,
                       const std::vector<std::string>& folders);

struct ReuseEvidence {
  VerifyOptions program;
  std::map<std::string, std::string> data_sha256;  // what the cell would read, by file
  std::string device;  // that the cell would be trained on: RunRecord::device
  enum class Elsewhere { kRefuse, kAccept } elsewhere = Elsewhere::kRefuse;  // build or device
};

// UserError: no receipt, one that does not verify, other data, imported weights, a configuration
// that was changed on the way, another build of the program, another device, in use.
void require_evidence(const ReusableRun& reusable, const ReuseEvidence& evidence);

// UserError: where the copy would go, files lie that are no run, or another process works.
void require_room(const ReusableRun& reusable, const MatrixFolder& folder);

// Copies the run, complete or not at all; files of checkpoints are linked where the file system
// can. The evidence is asked of the copy once more: the run may have gone on meanwhile. Returns the
// device where it is another one, else "".
std::string take_over(const ReusableRun& reusable, const MatrixFolder& folder,
                      const ReuseEvidence& evidence);

// Removes copies that a process did not complete. The caller holds the lock of the folder.
void remove_incomplete_copies(const Matrix& matrix, const MatrixFolder& folder);

}  // namespace assay
