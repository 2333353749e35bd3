// The data of a report page: for every run what it is, its audit, its curves, and what its routers
// did. One JSON object that the page draws and `assay report --json` prints; nothing is computed in
// the page that is not in here.
//
// A run whose telemetry cannot be read stays in the report with its configuration and audit, and
// "problem" says why the rest is missing; "notes" say what else is. Reads runs that are still going
// on.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace assay {

inline constexpr int kReportVersion = 1;

// How much of a run goes into the page.
struct ReportLimits {
  int64_t curve_points = 1000;  // of one curve
  int64_t measure_steps = 200;  // columns of a heat map of layer x step
  int64_t load_steps = 60;      // positions of the slider
  int64_t load_bins = 256;      // rows of experts

  // Half of everything but the bins; false where that would leave too little to look at.
  bool shrink();
};

// UserError where a path is no run or given twice, or where no run has telemetry that can be read.
nlohmann::ordered_json report_data(const std::vector<std::string>& runs,
                                   const ReportLimits& limits);

// Sentences for stderr: what the page lacks.
std::vector<std::string> report_warnings(const nlohmann::ordered_json& data);

}  // namespace assay
