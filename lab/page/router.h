// The routers in a report: measures by layer and step, loads by expert, tails, verdict.
#pragma once

#include <nlohmann/json.hpp>

#include "lab/page/data.h"
#include "lab/runs/run_record.h"

namespace assay {

// {"experts", "top_k", "window", "layers", ceilings,
//  "measures": {"steps", "of", "values": {column: [layer][step]}}
//  "loads":    {"steps", "of", "bin", "by_id": [step][layer][bin],
//               "sorted": [step][layer][bin] or null, "unused": [step][layer]}
//  "ccdf":     [{"layer", "load", "share"}], over the last W logged steps
//  "analysis": as `assay router --json`, without its steps}
// "measures" has every column of router_layer with a value; of more than limits.measure_steps
// logged steps it has those with the peaks of max_load_norm and dead_for_norm. Loads are assignment
// counts, summed over `bin` experts with neighbouring ids, or neighbours after sorting by load
// ("sorted", null if bin is 1). null for a dense model. UserError if a load vector does not unpack.
nlohmann::ordered_json report_router(const RunRecord& run, const TelemetryReader& telemetry,
                                     const ReportLimits& limits);

}  // namespace assay
