#include "lab/runs/run_measures.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "engine/telemetry/router_stats.h"
#include "lab/runs/run_summary.h"
#include "lab/runs/time_to_target.h"
#include "lab/runs/value_at_share.h"

namespace assay {
namespace {

using Value = std::optional<double>;
using Needs = RunMeasure::Needs;
using About = RunMeasure::About;

template <typename F>
Value mean_over_layers(const RunRecord& run, F&& of) {
  if (!run.health || run.health->layers.empty()) return std::nullopt;
  double sum = 0;
  for (const LayerHealth& layer : run.health->layers) sum += of(layer);
  return sum / double(run.health->layers.size());
}

Value of_health(const RunRecord& run, double RouterHealth::*member) {
  return run.health ? Value((*run.health).*member) : std::nullopt;
}

std::optional<int64_t> first_saturation(const RunRecord& run) {
  std::optional<int64_t> first;
  if (!run.health) return first;
  for (const LayerHealth& layer : run.health->layers) {
    if (layer.saturated_at)
      first = std::min(first.value_or(*layer.saturated_at), *layer.saturated_at);
  }
  return first;
}

// The layer saturated at that step, or at one that was not logged before it.
Value saturation_resolution(const RunRecord& run) {
  const auto first = first_saturation(run);
  if (!first) return std::nullopt;
  int64_t before = 0;
  for (const LayerHealth& layer : run.health->layers) {
    if (layer.saturated_at == first) before = std::max(before, layer.saturated_after);
  }
  return double(*first - before - 1);
}

Value val_loss(const RunRecord& run) {
  const auto last = run.last_val();
  return last ? Value(last->value) : std::nullopt;
}

Value best_val_loss(const RunRecord& run) {
  const auto best = run.best_val();
  return best ? Value(best->value) : std::nullopt;
}

Value bits_per_byte(const RunRecord& run) {
  if (run.val_bits_per_byte.empty()) return std::nullopt;
  return run.val_bits_per_byte.back().value;
}

Value at_share(const RunRecord& run, const std::vector<EvalValue>& values, double share) {
  const auto read = value_at_share(run, values, share);
  return read ? Value(read->value) : std::nullopt;
}

Value val_loss_at(const RunRecord& run, double share) {
  return at_share(run, run.val_loss_nats, share);
}

Value bits_per_byte_at(const RunRecord& run, double share) {
  return at_share(run, run.val_bits_per_byte, share);
}

// Least-squares slope of the loss against log2 of the step, from a tenth of run.steps on; nullopt
// where one of these losses is not finite.
Value val_loss_trend(const RunRecord& run) {
  double n = 0, x_sum = 0, y_sum = 0, xx_sum = 0, xy_sum = 0;
  for (const EvalValue& v : run.val_loss_nats) {
    if (double(v.step) < 0.1 * double(run.config.run.steps)) continue;
    const double x = std::log2(double(v.step) / double(run.config.run.steps));
    n += 1;
    x_sum += x;
    y_sum += v.value;
    xx_sum += x * x;
    xy_sum += x * v.value;
  }
  if (n < 3 || !std::isfinite(y_sum)) return std::nullopt;
  return (n * xy_sum - x_sum * y_sum) / (n * xx_sum - x_sum * x_sum);
}

// Only the score over all tasks and rows: a part of them is another number in every run.
Value core(const RunRecord& run) {
  return run.core && run.core->name == "core" ? Value(run.core->value) : std::nullopt;
}

Value step_seconds(const RunRecord& run) {
  return run.seconds_per_step();
}

template <typename F>
Value at_target(const RunRecord& run, F&& of) {
  const auto reached = target_reached(run);
  return reached ? of(*reached) : std::nullopt;
}

template <TargetCost kCost>
Value target_resolution(const RunRecord& run) {
  const auto time = target_reached(run);
  return time ? cost_resolution(run, *time, kCost) : std::nullopt;
}

// Over the layers, of percent of the mean load.
Value largest_over_steps(const RunRecord& run, double StepLoads::*member) {
  Value largest;
  if (!run.health) return largest;
  for (const LayerHealth& layer : run.health->layers) {
    if (!layer.steps) return std::nullopt;
    largest = std::max(largest.value_or(0), (*layer.steps).*member / 100);
  }
  return largest;
}

// exp(entropy), of the layer where it is smallest: as many experts with equal loads have it.
Value effective_experts(const RunRecord& run) {
  if (!run.health || !run.config.model.moe) return std::nullopt;
  const double experts = double(run.config.model.moe->experts);
  return std::exp(run.health->min_entropy_norm * std::log(experts));
}

// The same over E: numbers of experts can be compared by it.
Value effective_share(const RunRecord& run) {
  const Value effective = effective_experts(run);
  if (!effective) return std::nullopt;
  return *effective / double(run.config.model.moe->experts);
}

// Of a run that logged enough for a verdict.
Value is_collapsed(const RunRecord& run) {
  if (!run.health) return std::nullopt;
  const RouterState state = router_state(*run.health);
  if (state == RouterState::kTooEarly) return std::nullopt;
  return state == RouterState::kCollapsed ? 1.0 : 0.0;
}

// From the first validation at or after the first saturation to the last one.
Value loss_after_saturation(const RunRecord& run) {
  const auto step = first_saturation(run);
  if (!step) return std::nullopt;
  for (const EvalValue& v : run.val_loss_nats) {
    if (v.step < *step) continue;
    if (v.step == run.val_loss_nats.back().step || !finite_value(v)) return std::nullopt;
    return run.val_loss_nats.back().value - v.value;
  }
  return std::nullopt;
}

Value first_saturated_depth(const RunRecord& run) {
  const auto step = first_saturation(run);
  if (!step || run.health->layers.size() < 2) return std::nullopt;
  const std::vector<LayerHealth>& layers = run.health->layers;
  double sum = 0, count = 0;
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].saturated_at != step) continue;
    sum += double(i) / double(layers.size() - 1);
    count += 1;
  }
  return sum / count;
}

Value max_load_by_depth(const RunRecord& run) {
  if (!run.health || run.health->layers.size() < 2) return std::nullopt;
  return run.health->layers.back().max_load_norm - run.health->layers.front().max_load_norm;
}

}  // namespace

const std::vector<RunMeasure>& run_measures() {
  static const std::vector<RunMeasure> all = {
      {"val_loss", "validation loss at the end, nats", Needs::kNothing, About::kEndLoss, val_loss,
       val_loss_at},
      {"best_val_loss", "smallest validation loss, nats", Needs::kNothing, About::kEndLoss,
       best_val_loss},
      {"bits_per_byte", "validation loss at the end, bits per byte of the text", Needs::kNothing,
       About::kEndLoss, bits_per_byte, bits_per_byte_at},
      {"val_loss_trend",
       "slope of the validation loss, nats per doubling of the tokens, from a tenth of the steps "
       "on",
       Needs::kNothing, About::kModel, val_loss_trend},
      {"core", "CORE at its last evaluation, of all tasks and rows", Needs::kCore, About::kModel,
       core},
      {"target_steps", "steps to run.target_loss", Needs::kTarget, About::kModel,
       [](const RunRecord& r) {
         return at_target(r, [](const TimeToTarget& t) { return Value(double(t.steps)); });
       },
       nullptr, target_resolution<TargetCost::kSteps>},
      {"target_tokens", "tokens to run.target_loss", Needs::kTarget, About::kModel,
       [](const RunRecord& r) {
         return at_target(r, [](const TimeToTarget& t) { return Value(t.tokens); });
       },
       nullptr, target_resolution<TargetCost::kTokens>},
      {"target_seconds", "seconds of training to run.target_loss", Needs::kTarget, About::kMachine,
       [](const RunRecord& r) {
         return at_target(r, [](const TimeToTarget& t) { return Value(t.seconds); });
       },
       nullptr, target_resolution<TargetCost::kSeconds>},
      {"target_flops", "training FLOPs to run.target_loss", Needs::kTarget, About::kModel,
       [](const RunRecord& r) {
         return at_target(r, [](const TimeToTarget& t) { return Value(t.flops); });
       },
       nullptr, target_resolution<TargetCost::kFlops>},
      {"step_seconds", "seconds of training per step, mean over the run", Needs::kNothing,
       About::kMachine, step_seconds},
      {"loss_after_saturation",
       "validation loss at the end minus that at the first validation after a layer saturated",
       Needs::kExperts, About::kModel, loss_after_saturation},
      {"cv", "cv / its ceiling, mean over layers", Needs::kExperts, About::kWindow,
       [](const RunRecord& r) { return of_health(r, &RouterHealth::mean_cv_norm); }},
      {"step_cv", "cv of single steps as a share of the mean load, the largest of the layers",
       Needs::kExperts, About::kWindow,
       [](const RunRecord& r) { return largest_over_steps(r, &StepLoads::cv); }},
      {"swing",
       "the part of it that neither the loads of the window nor sampling explain, the largest of "
       "the layers",
       Needs::kExperts, About::kWindow,
       [](const RunRecord& r) { return largest_over_steps(r, &StepLoads::swing); }},
      {"max_load", "K max_load, mean over layers", Needs::kExperts, About::kWindow,
       [](const RunRecord& r) {
         return mean_over_layers(r, [](const LayerHealth& l) { return l.max_load_norm; });
       }},
      {"max_load_worst", "K max_load of the worst layer", Needs::kExperts, About::kWindow,
       [](const RunRecord& r) { return of_health(r, &RouterHealth::worst_max_load_norm); }},
      {"max_load_by_depth", "K max_load of the last layer minus that of the first", Needs::kExperts,
       About::kWindow, max_load_by_depth},
      {"entropy_min", "entropy / ln E, the smallest of the layers", Needs::kExperts, About::kWindow,
       [](const RunRecord& r) { return of_health(r, &RouterHealth::min_entropy_norm); }},
      {"effective_experts", "exp(entropy) of the layer where it is smallest", Needs::kExperts,
       About::kWindow, effective_experts},
      {"effective_share", "effective_experts over E", Needs::kExperts, About::kWindow,
       effective_share},
      {"dead", "share of the experts without an assignment", Needs::kExperts, About::kWindow,
       [](const RunRecord& r) { return of_health(r, &RouterHealth::dead_share); }},
      {"collapsed", "1 in a run whose routers are judged collapsed, else 0", Needs::kExperts,
       About::kRouters, is_collapsed, nullptr, nullptr, true},
      {"saturated_layers", "share of the layers that saturated at any logged step", Needs::kExperts,
       About::kRouters,
       [](const RunRecord& r) {
         return mean_over_layers(r,
                                 [](const LayerHealth& l) { return l.saturated_at ? 1.0 : 0.0; });
       }},
      {"first_saturation", "first logged step with a saturated layer", Needs::kExperts,
       About::kRouters,
       [](const RunRecord& r) {
         const auto step = first_saturation(r);
         return step ? Value(double(*step)) : std::nullopt;
       },
       nullptr, saturation_resolution},
      {"first_saturated_depth",
       "depth of that layer: 0 the first, 1 the last; the mean if several saturate at that "
       "step",
       Needs::kExperts, About::kRouters, first_saturated_depth},
  };
  return all;
}

const RunMeasure* find_run_measure(const std::string& name) {
  const auto& all = run_measures();
  const auto found = std::find_if(all.begin(), all.end(),
                                  [&](const RunMeasure& measure) { return measure.name == name; });
  return found == all.end() ? nullptr : &*found;
}

bool is_from_0_to_1(const RunMeasure& measure) {
  static const std::set<std::string> names = {
      "cv",   "max_load",  "max_load_worst",   "entropy_min",          "effective_share",
      "dead", "collapsed", "saturated_layers", "first_saturated_depth"};
  return names.count(measure.name) > 0;
}

SeedValues values_of(const SeedGroup& group, const RunMeasure& measure) {
  if (measure.resolution == nullptr) return values_of(group, Measure(measure.of));
  return values_of(group, Measure(measure.of), Measure(measure.resolution));
}

std::optional<Summary> summarise(const SeedValues& values, const RunMeasure& measure) {
  std::optional<Summary> summary = summarise(values);
  if (summary && measure.is_share) summary->interval95.reset();
  return summary;
}

std::vector<int64_t> first_saturated_layers(const RunRecord& run) {
  std::vector<int64_t> layers;
  const auto step = first_saturation(run);
  if (!step) return layers;
  for (const LayerHealth& layer : run.health->layers) {
    if (layer.saturated_at == step) layers.push_back(layer.layer);
  }
  return layers;
}

}  // namespace assay
