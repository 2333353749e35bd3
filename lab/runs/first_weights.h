// The weights from which runs began: drawn from their seeds, or imported from another program
// (`assay import`). The training behind imported weights is in no figure of a run.
#pragma once

#include <span>
#include <string>

#include "lab/runs/run_record.h"

namespace assay {

// SHA-256 of the weights that the run in `folder`, or the trunk of a branch, was imported with; of
// an old version that of its imported.json; "" without one.
std::string imported_weights(const std::string& folder);

bool began_from_imported(const RunRecord& run);

// Why the losses of these runs are not what equal training gives: "b began from imported weights
// (imported.json), a from its seed". "" if all began from their seeds, or all from one import.
std::string other_first_weights(std::span<const RunRecord> runs);

}  // namespace assay
