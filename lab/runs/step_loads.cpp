#include "lab/runs/step_loads.h"

#include <algorithm>
#include <cmath>

#include "base/median.h"

namespace assay {
namespace {

std::optional<double> median_of_last(const RouterCurves& curves, const char* column,
                                     int64_t window) {
  const auto found = curves.find(column);
  if (found == curves.end() || found->second.empty() || window < 1) return std::nullopt;
  const std::vector<StepValue>& all = found->second;
  std::vector<double> values;
  for (size_t i = all.size() - std::min(all.size(), size_t(window)); i < all.size(); ++i) {
    values.push_back(all[i].value);
  }
  return median(std::move(values));
}

// Adds the probes at the last W logged steps, which are not at each of them.
void add_probes(const RouterCurves& curves, int64_t window, StepLoads& loads) {
  const auto found = curves.find("overlap");
  if (found == curves.end()) return;
  const std::vector<StepValue>& logged = curves.at("cv");
  const int64_t from = logged[logged.size() - std::min(logged.size(), size_t(window))].step;
  std::vector<double> values;
  double changed = 0;
  for (const StepValue& v : found->second) {
    if (v.step < from) continue;
    values.push_back(v.value);
    changed += 1 - v.value;
  }
  if (values.empty()) return;
  loads.overlap = median(std::move(values));
  loads.changed = changed;
}

}  // namespace

std::optional<StepLoads> step_loads(const RouterCurves& curves, int64_t window, double window_cv) {
  const auto cv = median_of_last(curves, "cv", window);
  const auto floor = median_of_last(curves, "cv_floor", window);
  const auto load = median_of_last(curves, "max_load_norm", window);
  if (!cv || !floor || !load) return std::nullopt;
  const double moving = *cv * *cv - *floor * *floor - window_cv * window_cv;
  StepLoads loads{.cv = *cv,
                  .cv_floor = *floor,
                  .max_load_norm = *load,
                  .swing = std::sqrt(std::max(0.0, moving))};
  add_probes(curves, window, loads);
  return loads;
}

double restless_swing(int64_t experts, int64_t top_k) {
  const double ceiling = 100 * std::sqrt(double(experts - top_k) / double(top_k));
  return std::min(kRestlessSwing, ceiling / 2);
}

double least_change(double swing) {
  return kChangedChoices * std::min(swing / 100, kLargestTurns);
}

bool is_restless(const StepLoads& steps, double window_max_load_norm, int64_t experts,
                 int64_t top_k) {
  if (top_k < 1 || experts <= top_k) return false;
  if (steps.swing < steps.cv_floor) return false;  // sampling says as much
  if (steps.changed && *steps.changed < least_change(steps.swing)) return false;
  const double rise = steps.max_load_norm - window_max_load_norm;
  const double way = 1 - double(top_k) / double(experts);
  return steps.swing >= restless_swing(experts, top_k) || rise >= kRestlessExcess * way;
}

}  // namespace assay
