// A matrix read back from its folder alone: the file it was made from may have moved or changed.
#pragma once

#include <string>
#include <vector>

#include "lab/matrix/matrix.h"

namespace assay {

// True if the path is a folder with the record of a matrix (matrix.json).
bool is_matrix_folder(const std::string& path);

// True of configs/ and logs/ of a matrix.
bool is_beside_matrix_runs(const std::string& path);

struct RecordedMatrix {
  Matrix matrix;
  std::vector<std::string> notes;  // what the record lacks, one sentence each
};

// The contracts, cells and claims of matrix.json, with the configurations of configs/ and of the
// runs. UserError if the record is damaged.
RecordedMatrix read_matrix_folder(const std::string& folder);

}  // namespace assay
