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

namespace {

// Positions in [from, to) where the peaks are largest, as few as can be; `from` without a peak.
std::set<int64_t> highest_of(const std::vector<std::vector<double>>& peaks, int64_t from,
                             int64_t to) {
  std::set<int64_t> kept;
  for (const std::vector<double>& peak : peaks) {
    int64_t best = from;
    for (int64_t at = from; at < to; ++at) {
      if (!(peak[size_t(at)] <= peak[size_t(best)]) && !std::isnan(peak[size_t(at)])) best = at;
    }
    if (std::isnan(peak[size_t(best)])) continue;
    const bool has = std::any_of(kept.begin(), kept.end(), [&](int64_t at) {
      return peak[size_t(at)] == peak[size_t(best)];
    });
    if (!has) kept.insert(best);
  }
  if (kept.empty()) kept.insert(from);
  return kept;
}

std::vector<int64_t> peaks_of(const std::vector<int64_t>& steps,
                              const std::vector<std::vector<double>>& peaks, int64_t stretches) {
  const auto size = int64_t(steps.size());
  std::vector<int64_t> kept = {steps.front()};
  for (int64_t i = 0; i < stretches; ++i) {
    const int64_t from = 1 + i * (size - 2) / stretches, to = 1 + (i + 1) * (size - 2) / stretches;
    for (const int64_t at : highest_of(peaks, from, to)) kept.push_back(steps[size_t(at)]);
  }
  kept.push_back(steps.back());
  return kept;
}

}  // namespace

std::vector<int64_t> peaks_chosen(const std::vector<int64_t>& steps,
                                  const std::vector<std::vector<double>>& peaks, int64_t count) {
  const auto size = int64_t(steps.size()), rest = count - 2, each = int64_t(peaks.size());
  if (size <= count || each == 0 || rest < each) return evenly_chosen(steps, count);
  std::vector<int64_t> chosen = peaks_of(steps, peaks, rest / each);
  int64_t fits = rest / each, too_many = rest + 1;
  while (too_many - fits > 1) {
    const int64_t stretches = (fits + too_many) / 2;
    std::vector<int64_t> more = peaks_of(steps, peaks, stretches);
    const bool fit = int64_t(more.size()) <= count;
    (fit ? fits : too_many) = stretches;
    if (fit) chosen = std::move(more);
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
