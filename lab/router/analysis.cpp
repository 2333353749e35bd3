#include "lab/router/analysis.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "engine/telemetry/router_stats.h"

namespace assay {
namespace {

constexpr double kCcdfLoads[] = {0.1, 0.5, 1, 2, 5, 10, 50, 100, 500};
constexpr int kDefaultSteps = 6;

// The logged step nearest to each wanted one, ascending and without duplicates. By default
// kDefaultSteps on a logarithmic scale.
std::vector<int64_t> chosen_steps(const RouterHistory& history, std::vector<int64_t> wanted) {
  const std::vector<int64_t>& logged = history.steps;
  if (wanted.empty()) {
    const double first = std::log(double(std::max<int64_t>(1, logged.front())));
    const double last = std::log(double(std::max<int64_t>(1, logged.back())));
    for (int i = 0; i < kDefaultSteps; ++i) {
      wanted.push_back(std::llround(std::exp(first + (last - first) * i / (kDefaultSteps - 1))));
    }
  }
  std::vector<int64_t> chosen;
  for (const int64_t step : wanted) {
    chosen.push_back(*std::min_element(logged.begin(), logged.end(), [&](int64_t a, int64_t b) {
      return std::abs(a - step) < std::abs(b - step);
    }));
  }
  std::sort(chosen.begin(), chosen.end());
  chosen.erase(std::unique(chosen.begin(), chosen.end()), chosen.end());
  return chosen;
}

// limit: saturation_limit().
RouterAtStep at_step(const RouterHistory& history, const std::vector<StepValue>& loss, double limit,
                     int64_t step) {
  RouterAtStep s{.step = step};
  for (const StepValue& v : loss) {
    if (v.step == step) s.loss_nats = v.value;
  }
  const double count = double(history.layers.size());
  bool first = true;
  for (const LayerHistory& layer : history.layers) {
    const auto value = [&](const char* name) { return layer.at(name, step).value_or(0); };
    s.cv_mean += value("cv") / count;
    s.cv_floor = std::max(s.cv_floor, value("cv_floor"));
    if (const auto norm = layer.at("cv_norm", step)) {
      s.cv_norm_mean = s.cv_norm_mean.value_or(0) + *norm / count;
    }
    s.max_load_mean += value("max_load") / count;
    s.max_load_norm_mean += value("max_load_norm") / count;
    if (first || value("max_load_norm") > s.max_load_norm_worst) {
      s.max_load_norm_worst = value("max_load_norm");
      s.worst_layer = layer.layer;
    }
    s.entropy_min = first ? value("entropy") : std::min(s.entropy_min, value("entropy"));
    if (const auto norm = layer.at("entropy_norm", step)) {
      s.entropy_norm_min = std::min(s.entropy_norm_min.value_or(*norm), *norm);
    }
    if (const auto norm = layer.at("e_eff_norm", step)) {
      s.e_eff_norm_min = std::min(s.e_eff_norm_min.value_or(*norm), *norm);
    }
    const int64_t active = std::llround(value("active"));
    s.active_min = first ? active : std::min(s.active_min, active);
    if (const auto dead = layer.at("dead_for", step)) {
      s.dead = s.dead.value_or(0) + int64_t(std::llround(*dead));
    }
    if (value("max_load_norm") >= limit) ++s.saturated;
    first = false;
  }
  return s;
}

std::vector<double> ccdf(const std::vector<uint64_t>& counts, const std::vector<double>& loads) {
  double sum = 0;
  for (const uint64_t c : counts) sum += double(c);
  std::vector<double> shares;
  for (const double load : loads) {
    const auto with = std::count_if(counts.begin(), counts.end(), [&](uint64_t c) {
      return double(c) * double(counts.size()) >= load * sum;
    });
    shares.push_back(sum > 0 ? double(with) / double(counts.size()) : 0);
  }
  return shares;
}

void add_dead(const LayerHistory& from, int64_t last_step, RouterLayer& layer) {
  layer.never_used = from.never_used;
  if (!from.dead) return;
  std::vector<int64_t> since;
  for (const DeadExpert& d : *from.dead) {
    since.push_back(last_step - d.last_used);
  }
  std::sort(since.begin(), since.end());
  layer.dead = int64_t(since.size());
  if (since.empty()) return;
  layer.dead_longest = since.back();
  layer.dead_median = since[since.size() / 2];
}

// The median: a run that lost some rows is still logged at every step.
int64_t step_gap(const RouterHistory& history) {
  const size_t count = history.steps.size();
  std::vector<int64_t> gaps;
  for (size_t i = count - std::min(count - 1, size_t(history.window)); i < count; ++i) {
    gaps.push_back(history.steps[i] - history.steps[i - 1]);
  }
  if (gaps.empty()) return 1;
  std::sort(gaps.begin(), gaps.end());
  return gaps[gaps.size() / 2];
}

RouterLayer layer_of(const LayerHistory& from, const RouterHistory& history,
                     const std::vector<double>& ccdf_loads, double limit) {
  const int64_t last = history.steps.back();
  const auto value = [&](const char* name) { return from.at(name, last).value_or(0); };
  RouterLayer layer{.layer = from.layer,
                    .assignments = value("window_assignments"),
                    .cv = value("window_cv"),
                    .cv_floor = value("window_cv_floor"),
                    .max_load = value("window_max_load"),
                    .max_load_norm = value("window_max_load_norm"),
                    .gini = value("window_gini"),
                    .active_norm = value("window_active_norm"),
                    .cv_norm = from.at("window_cv_norm", last),
                    .entropy_norm = from.at("window_entropy_norm", last),
                    .e_eff_norm = from.at("window_e_eff_norm", last),
                    .ccdf = ccdf(from.window_counts, ccdf_loads),
                    .bias_range = from.at("bias_range", last),
                    .margin = from.last("margin"),
                    .lead = from.last("lead"),
                    .gate_entropy_norm = from.last("gate_entropy_norm"),
                    .overlap = from.last("overlap")};
  for (const StepValue& v : from.measure.at("max_load_norm")) {
    if (v.value < limit) continue;
    layer.saturated_at = v.step;
    break;
  }
  layer.steps = step_loads(from.measure, history.window, layer.cv);
  add_dead(from, last, layer);
  const size_t count = std::min(from.turnover.size(), size_t(history.window));
  for (size_t i = from.turnover.size() - count; i < from.turnover.size(); ++i) {
    layer.turnover = layer.turnover.value_or(0) + from.turnover[i].value / double(count);
  }
  return layer;
}

}  // namespace

RouterAnalysis analyse_router(const RunRecord& run, const RouterHistory& history,
                              const std::vector<StepValue>& loss,
                              const std::vector<int64_t>& steps) {
  CHECK(!history.steps.empty() && !history.layers.empty(), "no logged step of a router");
  const double experts = double(history.experts), top_k = double(history.top_k);
  RouterAnalysis a{.run = run.name,
                   .end = run.end,
                   .experts = history.experts,
                   .top_k = history.top_k,
                   .window = history.window,
                   .logged = int64_t(history.steps.size()),
                   .last_step = history.steps.back(),
                   .planned_steps = run.config.run.steps,
                   .step_gap = step_gap(history),
                   .cv_ceiling = 100 * std::sqrt((experts - top_k) / top_k),
                   .max_load_ceiling = 1 / top_k,
                   .entropy_ceiling = std::log(experts)};
  const double assignments = history.layers.front().last("assignments").value_or(0);
  a.turnover_floor = uniform_routing(a.experts, a.top_k, assignments).gini;
  for (const double load : kCcdfLoads) {
    if (load <= experts / top_k) a.ccdf_loads.push_back(load);
  }
  const double limit = saturation_limit(history.experts, history.top_k);
  for (const int64_t step : chosen_steps(history, steps)) {
    a.steps.push_back(at_step(history, loss, limit, step));
  }
  for (const LayerHistory& layer : history.layers) {
    a.layers.push_back(layer_of(layer, history, a.ccdf_loads, limit));
  }
  a.verdict = router_verdict(a, run.config);
  return a;
}

RouterAnalysis analyse_router(const RunRecord& run, const TelemetryReader& telemetry,
                              const std::vector<int64_t>& steps) {
  if (moe_blocks(run.config.model) == 0) {  // no experts, or first_dense_layers covers them all
    throw UserError(run.path + ": the model is dense: it has no router",
                    "give the run of a model with model.moe");
  }
  const RouterHistory history =
      read_router_history(telemetry, run.config.model.moe->top_k, run.config.telemetry.window);
  if (history.layers.empty()) {
    throw UserError(run.path + ": no step of its routers is logged yet",
                    "wait for the first logged step (run.log_every)");
  }
  for (const int64_t step : steps) {
    if (step < 1 || step > history.steps.back()) {
      throw UserError(strprintf("--steps %ld: the run has logged steps %ld to %ld", long(step),
                                long(history.steps.front()), long(history.steps.back())),
                      "give steps in that range; the nearest logged ones are shown");
    }
  }
  return analyse_router(run, history, telemetry.scalar("train_loss_nats"), steps);
}

}  // namespace assay
