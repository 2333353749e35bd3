// RUN/evals/step-N.json: what was measured of a step, by `assay eval` or by the run itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace assay {

// The file, its folder made. suffix: of what belongs to it but is not read as an evaluation.
std::string evaluation_file(const std::string& run, int64_t step, const std::string& suffix = "");

// What was measured of the same step before is kept beside `result`. Returns the file. UserError
// when it cannot be written, or what is there is damaged.
std::string record_evaluation(const std::string& run, int64_t step,
                              const nlohmann::ordered_json& result);

}  // namespace assay
