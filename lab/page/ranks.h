// The ranks in a report: how long each took and waited, and which one the others wait for.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/telemetry/reader.h"
#include "lab/page/data.h"

namespace assay {

// {"first_step", "last_step", "steps": number of logged steps, "says": sentence, "slow": rank or
//  null, "ranks": [{"rank", "step_ms", "wait_ms", "wait_share", "bytes_sent", "peak_rss_bytes"}]}
//
// Medians, but for the largest memory, over the last logged steps that had as many ranks as the
// very last one, at most limits.measure_steps of them. null for a run without several ranks.
nlohmann::ordered_json report_ranks(const TelemetryReader& telemetry, const ReportLimits& limits);

}  // namespace assay
