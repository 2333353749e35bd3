// The matrix of a page: its tables, rankings and claims, from its folder (lab/matrix/folder.h).
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace assay {

// The runs of the matrix that have begun, in the order of its cells. UserError if there is none.
std::vector<std::string> matrix_runs(const std::string& folder);

// As `assay matrix --summary --json` of the runs that are finished, and with "folder", "notes",
// "published" (the lanes of the study it tests, or null) and for each contract "says", what it
// holds fixed. Rows name their runs by folder. "unread" are those of the notes that are of a run
// which could not be read.
nlohmann::ordered_json report_matrix(const std::string& folder);

}  // namespace assay
