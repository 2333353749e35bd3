#include "lab/router/history.h"

#include <algorithm>
#include <cmath>

namespace assay {
namespace {

constexpr const char* kHistoryMeasures[] = {"assignments",
                                            "cv",
                                            "cv_norm",
                                            "cv_floor",
                                            "max_load",
                                            "max_load_norm",
                                            "entropy",
                                            "entropy_norm",
                                            "e_eff_norm",
                                            "active",
                                            "active_norm",
                                            "gini",
                                            "dead_for",
                                            "bias_range",
                                            "margin",
                                            "lead",
                                            "gate_entropy_norm",
                                            "overlap",
                                            "window_assignments",
                                            "window_cv",
                                            "window_cv_norm",
                                            "window_cv_floor",
                                            "window_max_load",
                                            "window_max_load_norm",
                                            "window_entropy_norm",
                                            "window_e_eff_norm",
                                            "window_active_norm",
                                            "window_gini"};

// Reads every load vector of a layer once, in order.
void read_loads(const TelemetryReader& telemetry, RouterHistory& history, LayerHistory& layer) {
  const size_t from_window =
      history.steps.size() - std::min(history.steps.size(), size_t(history.window));
  std::vector<int64_t> last_used;
  std::vector<uint32_t> before;
  for (size_t i = 0; i < history.steps.size(); ++i) {
    std::vector<uint32_t> counts = telemetry.expert_load(history.steps[i], layer.layer);
    if (counts.empty()) continue;
    last_used.resize(counts.size());
    layer.window_counts.resize(counts.size());
    for (size_t e = 0; e < counts.size(); ++e) {
      if (counts[e] > 0) last_used[e] = history.steps[i];
      if (i >= from_window) layer.window_counts[e] += counts[e];
    }
    if (before.size() == counts.size()) {
      layer.turnover.push_back({.step = history.steps[i], .value = load_turnover(before, counts)});
    }
    before = std::move(counts);
  }
  layer.never_used = std::count(last_used.begin(), last_used.end(), 0);
  if (!history.first_whole_window()) return;
  layer.dead.emplace();
  for (size_t e = 0; e < last_used.size(); ++e) {
    if (layer.window_counts[e] == 0) {
      layer.dead->push_back({.expert = int64_t(e), .last_used = last_used[e]});
    }
  }
}

// Earlier versions recorded 0 dead experts at the steps before the first whole window.
void drop_unknown_dead(const RouterHistory& history, LayerHistory& layer) {
  const std::optional<int64_t> from = history.first_whole_window();
  std::erase_if(layer.measure["dead_for"],
                [&](const StepValue& v) { return !from || v.step < *from; });
}

}  // namespace

std::optional<int64_t> RouterHistory::first_whole_window() const {
  if (window < 1 || int64_t(steps.size()) < window) return std::nullopt;
  return steps[size_t(window - 1)];
}

std::optional<double> LayerHistory::at(const std::string& name, int64_t step) const {
  const auto found = measure.find(name);
  if (found == measure.end()) return std::nullopt;
  const std::vector<StepValue>& values = found->second;
  const auto it = std::lower_bound(values.begin(), values.end(), step,
                                   [](const StepValue& v, int64_t s) { return v.step < s; });
  if (it == values.end() || it->step != step) return std::nullopt;
  return it->value;
}

std::optional<double> LayerHistory::last(const std::string& name) const {
  const auto found = measure.find(name);
  if (found == measure.end() || found->second.empty()) return std::nullopt;
  return found->second.back().value;
}

double load_turnover(const std::vector<uint32_t>& before, const std::vector<uint32_t>& now) {
  double sum_before = 0, sum_now = 0, moved = 0;
  for (const uint32_t c : before) sum_before += c;
  for (const uint32_t c : now) sum_now += c;
  if (sum_before == 0 || sum_now == 0) return 0;
  for (size_t e = 0; e < now.size(); ++e) {
    moved += std::abs(now[e] / sum_now - before[e] / sum_before);
  }
  return moved / 2;
}

RouterHistory read_router_history(const TelemetryReader& telemetry, int64_t top_k, int64_t window,
                                  std::optional<int64_t> up_to) {
  RouterHistory history{.top_k = top_k, .window = window};
  std::optional<int64_t> last = telemetry.last_step();
  if (!last) return history;
  // A running run may log more meanwhile; only steps up to `last` are used.
  auto layers = telemetry.router_curves(kHistoryMeasures, std::min(*last, up_to.value_or(*last)));
  if (up_to) {
    last = 0;  // the last logged step up to there
    for (auto& [layer, curves] : layers) {
      const std::vector<StepValue>& assignments = curves["assignments"];
      if (!assignments.empty()) last = std::max(*last, assignments.back().step);
    }
  }
  for (auto& [layer, curves] : layers) {
    const std::vector<StepValue>& assignments = curves["assignments"];
    if (assignments.empty() || assignments.back().step != *last) continue;
    history.layers.push_back({.layer = layer, .measure = std::move(curves)});
  }
  if (history.layers.empty()) return history;
  for (const StepValue& v : history.layers.front().measure["assignments"]) {
    history.steps.push_back(v.step);
  }
  for (LayerHistory& layer : history.layers) {
    read_loads(telemetry, history, layer);
    drop_unknown_dead(history, layer);
    history.experts = std::max(history.experts, int64_t(layer.window_counts.size()));
  }
  return history;
}

}  // namespace assay
