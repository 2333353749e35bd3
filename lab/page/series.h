// Curves short enough for a page: numbers rounded to a few digits, long curves thinned so that no
// peak is lost.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/telemetry/reader.h"

namespace assay {

inline constexpr int kCurveDigits = 7;    // significant, of scalars and evaluations
inline constexpr int kMeasureDigits = 5;  // of router measures

// The number with so many significant digits, as JSON; null where it is not finite.
nlohmann::ordered_json short_number(double value, int digits);

// At most `points` values, the first and the last among them: a longer curve is cut into stretches
// of equal length, and each keeps its lowest and its highest value where they stand. Values that
// are no number are kept only where a stretch has nothing else.
std::vector<StepValue> thinned(const std::vector<StepValue>& curve, int64_t points);

// At most `count` of them, evenly spaced by position, first and last included.
std::vector<int64_t> evenly_chosen(const std::vector<int64_t>& steps, int64_t count);
// The same, but half of them spaced evenly by the logarithm of the position: routers decide early.
std::vector<int64_t> early_chosen(const std::vector<int64_t>& steps, int64_t count);

// {"step": [...], "value": [...], "of": values before thinning}
nlohmann::ordered_json series_json(const std::vector<StepValue>& curve, int64_t points);

}  // namespace assay
