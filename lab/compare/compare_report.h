// A comparison as a sentence, as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/compare/compare.h"

namespace assay {

// The answer in a sentence or two: which model is ahead, by how much, how certain that is and what
// was held fixed; without a ranking, why there is none.
std::string comparison_sentence(const Comparison& comparison);
std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json comparison_json(const Comparison& comparison);

}  // namespace assay
