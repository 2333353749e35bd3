// A comparison as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "lab/compare/compare.h"

namespace assay {

std::string comparison_text(const Comparison& comparison);
nlohmann::ordered_json comparison_json(const Comparison& comparison);

}  // namespace assay
