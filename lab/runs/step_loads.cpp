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

}  // namespace

std::optional<StepLoads> step_loads(const RouterCurves& curves, int64_t window, double window_cv) {
  const auto cv = median_of_last(curves, "cv", window);
  const auto floor = median_of_last(curves, "cv_floor", window);
  const auto load = median_of_last(curves, "max_load_norm", window);
  if (!cv || !floor || !load) return std::nullopt;
  const double moving = *cv * *cv - *floor * *floor - window_cv * window_cv;
  return StepLoads{.cv = *cv,
                   .cv_floor = *floor,
                   .max_load_norm = *load,
                   .swing = std::sqrt(std::max(0.0, moving))};
}

double restless_swing(int64_t experts, int64_t top_k) {
  const double ceiling = 100 * std::sqrt(double(experts - top_k) / double(top_k));
  return std::min(kRestlessSwing, ceiling / 2);
}

bool is_restless(const StepLoads& steps, double window_max_load_norm, int64_t experts,
                 int64_t top_k) {
  if (top_k < 1 || experts <= top_k) return false;
  if (steps.swing < steps.cv_floor) return false;  // sampling says as much
  const double rise = steps.max_load_norm - window_max_load_norm;
  const double way = 1 - double(top_k) / double(experts);
  return steps.swing >= restless_swing(experts, top_k) || rise >= kRestlessExcess * way;
}

}  // namespace assay
