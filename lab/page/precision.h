// The part of a report that shows number formats: what `assay precision` says of one step, over the
// sampled steps.
#pragma once

#include <nlohmann/json.hpp>

#include "engine/telemetry/reader.h"
#include "lab/page/data.h"

namespace assay {

// {"steps", "of": sampled steps, "rows": [{"role", "operand", "format", "tensors", "values":
// {measure: [step]}}]} Measures: those of FormatLoss, blocks as shares of all; null where one has
// no value, and without those that never have one. null for a run in which no product is quantised.
nlohmann::ordered_json report_precision(const TelemetryReader& telemetry,
                                        const ReportLimits& limits);

}  // namespace assay
