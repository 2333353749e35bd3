#include "lab/page/series.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <set>

#include "base/median.h"

namespace assay {

using Json = nlohmann::ordered_json;

Json short_number(double value, int digits) {
  if (!std::isfinite(value)) return nullptr;
  if (value == std::trunc(value) && std::abs(value) < 1e15) return int64_t(value);
  char text[40];
  std::snprintf(text, sizeof text, "%.*g", digits, value);
  return std::strtod(text, nullptr);
}

std::vector<StepValue> thinned(const std::vector<StepValue>& curve, int64_t points) {
  const auto size = int64_t(curve.size());
  if (size <= points || points < 4) return curve;
  const int64_t stretches = (points - 2) / 2;
  std::vector<StepValue> kept = {curve.front()};
  for (int64_t i = 0; i < stretches; ++i) {
    const int64_t from = 1 + i * (size - 2) / stretches, to = 1 + (i + 1) * (size - 2) / stretches;
    int64_t low = from, high = from;
    for (int64_t at = from; at < to; ++at) {
      const double value = curve[size_t(at)].value;
      if (std::isnan(value)) continue;
      if (!(value >= curve[size_t(low)].value)) low = at;  // also if that is NaN
      if (!(value <= curve[size_t(high)].value)) high = at;
    }
    kept.push_back(curve[size_t(std::min(low, high))]);
    if (low != high) kept.push_back(curve[size_t(std::max(low, high))]);
  }
  kept.push_back(curve.back());
  return kept;
}

std::vector<StepValue> stretch_means(const std::vector<StepValue>& curve, int64_t stretches) {
  const auto size = int64_t(curve.size());
  if (size <= stretches || stretches < 1) return curve;
  std::vector<StepValue> means;
  for (int64_t i = 0; i < stretches; ++i) {
    const int64_t from = i * size / stretches, to = (i + 1) * size / stretches;
    double sum = 0;
    int64_t steps = 0, numbers = 0;
    for (int64_t at = from; at < to; ++at) {
      steps += curve[size_t(at)].step - curve[size_t(from)].step;
      if (std::isnan(curve[size_t(at)].value)) continue;
      sum += curve[size_t(at)].value;
      ++numbers;
    }
    means.push_back({curve[size_t(from)].step + steps / (to - from), sum / double(numbers)});
  }
  return means;
}

std::vector<int64_t> evenly_chosen(const std::vector<int64_t>& steps, int64_t count) {
  const auto size = int64_t(steps.size());
  if (size <= count || count < 2) return steps;
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) {
    chosen.push_back(steps[size_t(i * (size - 1) / (count - 1))]);
  }
  return chosen;
}

std::vector<int64_t> early_chosen(const std::vector<int64_t>& steps, int64_t count) {
  const auto size = int64_t(steps.size());
  if (size <= count || count < 4) return evenly_chosen(steps, count);
  const std::vector<int64_t> even = evenly_chosen(steps, count / 2);
  std::set<int64_t> chosen(even.begin(), even.end());
  const int64_t more = count - count / 2;
  for (int64_t i = 0; i < more; ++i) {
    const double at = std::exp(std::log(double(size)) * double(i) / double(more - 1));
    chosen.insert(steps[size_t(std::clamp<int64_t>(std::llround(at) - 1, 0, size - 1))]);
  }
  return {chosen.begin(), chosen.end()};
}

namespace {

// {"step": [...], "value": [...]}
Json steps_and_values(const std::vector<StepValue>& curve) {
  Json json;
  json["step"] = Json::array();
  json["value"] = Json::array();
  for (const StepValue& v : curve) {
    json["step"].push_back(v.step);
    json["value"].push_back(short_number(v.value, kCurveDigits));
  }
  return json;
}

// NaN is left out.
double median_of(const std::vector<StepValue>& curve) {
  std::vector<double> values;
  for (const StepValue& v : curve) {
    if (!std::isnan(v.value)) values.push_back(v.value);
  }
  return median(values);
}

}  // namespace

Json series_json(const std::vector<StepValue>& curve, int64_t points) {
  const std::vector<StepValue> kept = thinned(curve, points);
  Json json = steps_and_values(kept);
  json["of"] = curve.size();
  if (kept.size() == curve.size()) return json;
  json["means"] = steps_and_values(stretch_means(curve, points / 2));
  json["median"] = short_number(median_of(curve), kCurveDigits);
  return json;
}

}  // namespace assay
