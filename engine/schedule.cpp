#include "engine/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace assay {

double Schedule::share(int64_t step) const {
  step = std::min(step, steps - 1);
  if (step < warmup) return static_cast<double>(step + 1) / static_cast<double>(warmup);
  if (step < decay_begin()) return 1.0;
  const double width = static_cast<double>(warmdown);
  if (decay == DecayShape::kLinear) return static_cast<double>(steps - step) / width;
  if (step == steps - 1) return floor_share;
  const double done = static_cast<double>(step + 1 - decay_begin()) / width;
  return floor_share + (1.0 - floor_share) * 0.5 * (1.0 + std::cos(std::numbers::pi * done));
}

Schedule make_schedule(const Config& config) {
  return {.steps = config.run.steps,
          .warmup = config.schedule.warmup,
          .warmdown = config.schedule.warmdown,
          .decay = config.schedule.decay == "cosine" ? DecayShape::kCosine : DecayShape::kLinear,
          .floor_share = config.schedule.floor / config.optimizer.lr};
}

}  // namespace assay
