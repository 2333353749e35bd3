// The data of a report page: the comparison of the runs (lab/page/models.h) and, of every run,
// configuration, audit, curves, samples and routers. One JSON object that the page draws and `assay
// report --json` prints; the page has no other source.
//
// A run whose telemetry cannot be read stays in the report with its configuration and audit;
// "problem" gives the reason. "notes" list other things that are missing. Runs that are still
// training can be read too.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/telemetry/sqlite.h"

namespace assay {

inline constexpr int kReportVersion = 2;

// How much of a run goes into the page.
struct ReportLimits {
  int64_t curve_points = 1000;  // per curve
  int64_t measure_steps = 200;  // of the measures of routers, number formats and ranks
  int64_t load_steps = 60;      // positions of the slider
  int64_t load_bins = 256;      // rows of experts
  int64_t sample_steps = 12;    // with texts, the first and the last among them
  int64_t sample_bytes = 4000;  // of a text; more are cut off

  // Multiplies everything except the bins by `share`, at most a half, each down to the least that
  // can be drawn; returns false, unchanged, if all are there.
  bool shrink(double share);
};

// What to do if no run has readable telemetry yet.
enum class NoTelemetry {
  kRefuse,
  kShow,  // a page of configurations and audits, for a server that waits for the first step
};

struct ReportChoices {
  std::string anchor = {};    // the log of a public run (lab/page/anchor.h); "" = none
  std::string contract = {};  // what the comparison holds fixed; "" = the runs' own contract
  Wait wait = Wait::kLong;    // for a program that holds the telemetry of a run
};

// paths: runs, or one folder of a matrix (lab/page/matrix.h). UserError if a path is neither or is
// given twice, if the log cannot be read, for a contract that is none or is given for a matrix, or,
// with kRefuse, if no run has readable telemetry. read_failed, if given: whether a part is absent
// that could not be read (ReadFailed), and may be there when the same files are read again.
nlohmann::ordered_json report_data(const std::vector<std::string>& paths,
                                   const ReportLimits& limits,
                                   NoTelemetry none = NoTelemetry::kRefuse,
                                   const ReportChoices& choices = {}, bool* read_failed = nullptr);

// Sentences for stderr about what the page lacks.
std::vector<std::string> report_warnings(const nlohmann::ordered_json& data);

}  // namespace assay
