// The routers' part of a report: measures by layer and step, loads by expert, tails, verdict.
#pragma once

#include <nlohmann/json.hpp>

#include "lab/page/data.h"
#include "lab/runs/run_record.h"

namespace assay {

// {"experts", "top_k", "window", "layers", ceilings,
//  "measures": {"steps", "of", "values": {column: [layer][step]}}        every column of router_layer with a value
//  "loads":    {"steps", "of", "bin", "by_id": [step][layer][bin], "sorted": the same or null, "unused": [step][layer]}
//  "ccdf":     [{"layer", "load", "share"}]                              over the last W logged steps
//  "analysis": as `assay router --json`, without its steps}
// Loads are assignment counts, summed over `bin` experts with neighbouring ids, or neighbours after
// sorting by load. null for a dense model. UserError when a load vector does not unpack.
nlohmann::ordered_json report_router(const RunRecord& run, const ReportLimits& limits);

}  // namespace assay
