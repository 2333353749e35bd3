// The summary of a matrix written down: Markdown for people, CSV and JSON for programs.
#pragma once

#include <string>

#include "lab/matrix/summary.h"

namespace assay {

// One table of results, one of costs and one ranking a contract; columns are aligned.
std::string summary_markdown(const MatrixSummary& summary);
// One row a model, precision and contract; one row a cell.
std::string summary_csv(const MatrixSummary& summary);
std::string runs_csv(const MatrixSummary& summary);
std::string summary_json(const MatrixSummary& summary);

// summary.md, summary.csv, summary.json and runs.csv.
void write_summary(const MatrixFolder& folder, const MatrixSummary& summary);

}  // namespace assay
