// What a matrix will do, before it does anything: `assay matrix --dry-run`.
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/reuse.h"

namespace assay {

struct PlannedCell {
  const Cell* cell = nullptr;
  CellStatus status;
  std::vector<std::string> also;  // names of the cells that coincide with it
  std::string reuse;    // the finished run elsewhere that will be copied for it; "" = it is trained
  std::string refused;  // why it cannot be copied after all, where that was asked; "" = it can
  std::string hint;     // what to do about that
};

struct MatrixPlan {
  const Matrix* matrix = nullptr;
  std::vector<PlannedCell> runs;         // in the order in which they begin
  std::vector<const Cell*> unavailable;  // selected, and not to be trained in their precision
};

// Of the selected cells; a waiting one may be reused. The matrix must outlive it.
MatrixPlan plan_matrix(const Matrix& matrix, const MatrixFolder& folder,
                       const std::vector<const Cell*>& selected, const Reusable& reusable = {});

std::string plan_text(const MatrixPlan& plan);
std::string plan_json(const MatrixPlan& plan);

}  // namespace assay
