// RUN/evals/step-N.json: what `assay eval` or the run itself measured of a step.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace assay {

// The path RUN/evals/step-N<suffix>.json; creates the folder. A suffix names a file that belongs to
// the evaluation but is not read as one.
std::string evaluation_file(const std::string& run, int64_t step, const std::string& suffix = "");

// Merges `result` into the file; the step's earlier measurements under other keys are kept. Returns
// the path. UserError when the file cannot be written or the existing one is damaged.
std::string record_evaluation(const std::string& run, int64_t step,
                              const nlohmann::ordered_json& result);

}  // namespace assay
