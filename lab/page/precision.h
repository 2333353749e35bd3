// The number formats in a report: the measures of `assay precision`, over the sampled steps.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/telemetry/reader.h"
#include "lab/page/data.h"

namespace assay {

// {"steps", "of": number of sampled steps,
//  "rows": [{"role", "operand", "format", "tensors", "values": {measure: [step]}}]}
//
// Measures are those of FormatLoss, with blocks as shares of all; null at a step without a value;
// measures that never have a value are left out. null for a run in which no product is quantised.
nlohmann::ordered_json report_precision(const TelemetryReader& telemetry,
                                        const ReportLimits& limits);

}  // namespace assay
