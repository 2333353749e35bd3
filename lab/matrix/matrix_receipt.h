// The receipt of a matrix: loss, bits per byte, CORE, steps to target, routers and differences of
// its tables, and the verdicts on its claims, each as a claim over the runs it came from. `assay
// receipt verify` recomputes them.
#pragma once

#include "lab/matrix/summary.h"
#include "lab/receipt/receipt.h"

namespace assay {

// Covers the finished runs and those that telemetry.collapse_stop ended; runs that diverged are in
// no mean, and their names are in `environment`. Writes the receipt of a run that has none, or one
// of other steps than it has done. The summary's files must be written already.
Receipt make_matrix_receipt(const MatrixFolder& folder, const MatrixSummary& summary);

}  // namespace assay
