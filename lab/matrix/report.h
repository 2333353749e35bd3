// The summary of a matrix as Markdown, CSV and JSON.
#pragma once

#include <string>

#include "lab/matrix/summary.h"

namespace assay {

// Per contract a table of results, of routers (MoE models) and of costs, and a ranking.
std::string summary_markdown(const MatrixSummary& summary);
std::string summary_csv(const MatrixSummary& summary);  // one row per contract, model, precision
std::string runs_csv(const MatrixSummary& summary);     // one row per cell
std::string summary_json(const MatrixSummary& summary);

// Writes summary.md, summary.csv, summary.json and runs.csv.
void write_summary(const MatrixFolder& folder, const MatrixSummary& summary);

}  // namespace assay
