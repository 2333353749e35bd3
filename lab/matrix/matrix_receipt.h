// The receipt of a matrix: every figure of its tables that says something of the models, as a claim
// over the runs it came from. `assay receipt verify` recomputes them.
#pragma once

#include "lab/matrix/summary.h"
#include "lab/receipt/receipt.h"

namespace assay {

// Of the runs that are finished; one that was killed before its receipt was written gets it now.
// The summary's files are written already.
Receipt make_matrix_receipt(const MatrixFolder& folder, const MatrixSummary& summary);

}  // namespace assay
