// Curves short enough for a page: numbers rounded to a few digits, long curves thinned so that no
// peak is lost.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <vector>

#include "engine/telemetry/reader.h"

namespace assay {

inline constexpr int kCurveDigits = 7;    // significant digits of scalars and evaluations
inline constexpr int kMeasureDigits = 5;  // of router measures

// The number with `digits` significant digits as JSON; whole numbers stay exact; null if not
// finite.
nlohmann::ordered_json short_number(double value, int digits);

// At most `points` values, the first and the last among them: a longer curve is cut into stretches
// of equal length, and each keeps its lowest and its highest value at their steps. NaN is kept only
// if a stretch has nothing else.
std::vector<StepValue> thinned(const std::vector<StepValue>& curve, int64_t points);

// The means of `stretches` stretches of equal length at the mean of their steps, rounded down; a
// curve that is no longer than that as it is. NaN is left out, and is the mean of nothing else.
std::vector<StepValue> stretch_means(const std::vector<StepValue>& curve, int64_t stretches);

// At most `count` of them, evenly spaced by position, first and last included.
std::vector<int64_t> evenly_chosen(const std::vector<int64_t>& steps, int64_t count);
// At most `count` of them, the first and the last among them: the rest is cut into stretches of
// equal length, and each keeps, of every one of `peaks`, a step where it is largest. A peak has a
// value per step, NaN where there is none. Where few steps hold the peaks, the stretches are more.
std::vector<int64_t> peaks_chosen(const std::vector<int64_t>& steps,
                                  const std::vector<std::vector<double>>& peaks, int64_t count);
// As evenly_chosen(), but half of them spaced evenly by the logarithm of the position: routers
// decide early.
std::vector<int64_t> early_chosen(const std::vector<int64_t>& steps, int64_t count);

// {"step": [...], "value": [...], "of": values before thinning}, and of a thinned curve "means":
// {"step": [...], "value": [...]}, from which averages and differences are drawn, and "median" of
// all values, since the lowest and highest say nothing of either.
nlohmann::ordered_json series_json(const std::vector<StepValue>& curve, int64_t points);

}  // namespace assay
