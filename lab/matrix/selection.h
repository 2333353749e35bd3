// The cells that --only selects.
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/matrix.h"

namespace assay {

// The cells of the models and precisions that `only` names, also by patterns as a shell has them
// ("e64-*"); all without it. UserError for a word that names none.
std::vector<const Cell*> selected_cells(const Matrix& matrix, const std::vector<std::string>& only);

// Whether `only` leaves out a model of the file.
bool leaves_out(const MatrixFile& file, const std::vector<std::string>& only,
                const std::string& model);

}  // namespace assay
