// What the defaults of a matrix file would put in place of what its models name themselves.
#pragma once

#include <string>

#include "lab/matrix/matrix.h"

namespace assay {

// UserError where models name a precision.recipe and the file has no precisions: all would be
// trained in `auto`.
void require_given_precisions(const Matrix& matrix);

// "model b names run.seed 7, but ...", where the file has no seeds. "" if there is nothing to say.
std::string replaced_seed(const Matrix& matrix);

}  // namespace assay
