#include "lab/runs/value_at_share.h"

#include <algorithm>
#include <cmath>

namespace assay {

std::optional<StepsRead> steps_read(std::span<const int64_t> steps, double wanted) {
  const int64_t *before = nullptr, *after = nullptr, *here = nullptr;
  const auto distance = [&](int64_t step) { return std::abs(double(step) - wanted); };
  for (const int64_t& step : steps) {
    if (step == 0) continue;
    if (distance(step) < 1 && (!here || distance(step) < distance(*here))) here = &step;
    if (double(step) <= wanted) before = &step;
    if (double(step) > wanted && !after) after = &step;
  }
  if (here) return StepsRead{.before = *here, .after = *here};
  if (!before || !after || double(*after) > kFarthestApart * double(*before)) return std::nullopt;
  return StepsRead{.before = *before, .after = *after};
}

std::optional<ValueAtShare> value_at_share(const RunRecord& run,
                                           const std::vector<EvalValue>& values, double share) {
  const double wanted = share * double(run.config.run.steps);
  std::vector<int64_t> steps;
  for (const EvalValue& v : values) steps.push_back(v.step);
  const std::optional<StepsRead> read = steps_read(steps, wanted);
  if (!read) return std::nullopt;
  const auto value_of_step = [&](int64_t step) {
    return finite_value(*std::find_if(values.begin(), values.end(),
                                      [&](const EvalValue& v) { return v.step == step; }));
  };
  const auto from = value_of_step(read->before), to = value_of_step(read->after);
  if (!from || !to) return std::nullopt;
  if (!read->interpolated()) return ValueAtShare{.value = *from};
  const double part = std::log(wanted / double(read->before)) /
                      std::log(double(read->after) / double(read->before));
  return ValueAtShare{.value = *from + part * (*to - *from), .interpolated = true};
}

}  // namespace assay
