// Summaries over seeds as text and as JSON. A single value is shown without an interval.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "lab/runs/statistics.h"

namespace assay {

// Four decimals; a whole number in groups; four significant digits.
enum class Digits { kLoss, kCount, kShort };

std::string number_text(double value, Digits digits);
std::string interval_text(const std::optional<Interval>& interval, Digits digits);  // "[a, b]", ""
// "3.2747 [3.2467, 3.3027]", "3.2747", "".
std::string summary_text(const std::optional<Summary>& summary, Digits digits);

// {"n", "mean", "sd", "interval95": [low, high]}, null for absent values.
nlohmann::ordered_json summary_json(const std::optional<Summary>& summary);

}  // namespace assay
