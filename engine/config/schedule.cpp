#include "engine/config/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/step_count.h"

namespace assay {
namespace {

int64_t steps_of(int64_t steps, const std::optional<double>& fraction, int64_t run_steps) {
  if (!fraction) return steps;
  return *fraction > 0 ? fraction_of_steps(run_steps, *fraction) : 0;
}

}  // namespace

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
  const ScheduleConfig& s = config.schedule;
  const int64_t steps = config.run.steps;
  const int64_t warmup = steps_of(s.warmup, s.warmup_fraction, steps);
  int64_t warmdown = steps_of(s.warmdown, s.warmdown_fraction, steps);
  // A cosine without a length takes the rest of the run: one that never falls is not meant.
  if (s.decay == DecayShape::kCosine && warmdown == 0)
    warmdown = std::max<int64_t>(0, steps - warmup);
  // Both fractions are rounded up, so their sum may exceed the steps.
  if (s.warmup_fraction && s.warmdown_fraction) warmdown = std::min(warmdown, steps - warmup);
  return {.steps = steps,
          .warmup = warmup,
          .warmdown = warmdown,
          .decay = config.schedule.decay,
          .floor_share = config.schedule.floor / config.optimizer.lr};
}

int64_t recipe_steps(const Config& config) {
  const double tail = config.precision.bf16_tail;
  return config.run.steps - (tail > 0 ? fraction_of_steps(config.run.steps, tail) : 0);
}

static bool quantises(const PrecisionConfig& p) {
  const bool plain = p.recipe == "bf16" || p.recipe == "fp32";  // `auto`: not resolved yet
  return !plain || !p.override_.empty();
}

const char* precision_phase(const Config& config, int64_t steps_done) {
  return quantises(config.precision) && steps_done > recipe_steps(config) ? "bf16" : "recipe";
}

bool same_formats(const Config& a, const Config& b, int64_t steps) {
  if (!quantises(a.precision)) return true;
  return std::min(recipe_steps(a), steps) == std::min(recipe_steps(b), steps);
}

}  // namespace assay
