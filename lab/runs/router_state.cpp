#include "lab/runs/router_state.h"

#include <algorithm>
#include <tuple>

#include "base/check.h"
#include "engine/telemetry/router_stats.h"

namespace assay {
namespace {

// What sampling alone gives is no swing. Layers without one, as where the window shows all, are
// told apart by how uneven their steps are.
bool is_worse(const StepLoads& a, const StepLoads& b) {
  const auto badness = [](const StepLoads& s) {
    return std::tuple(s.swing < s.cv_floor ? 0 : s.swing, s.cv, s.max_load_norm);
  };
  return badness(a) > badness(b);
}

// In the order of the layers; the restless ones come before others.
void add_steps(const LayerHealth& layer, RouterHealth& health) {
  if (!layer.steps) return;
  const bool restless =
      is_restless(*layer.steps, layer.max_load_norm, health.experts, health.top_k);
  const bool first_restless = restless && health.restless.empty();
  if (restless) health.restless.push_back(layer.layer);
  if (!restless && !health.restless.empty()) return;
  if (!health.worst_steps || first_restless || is_worse(*layer.steps, *health.worst_steps)) {
    health.worst_steps = layer.steps;
    health.worst_steps_layer = layer.layer;
  }
}

// Of a window with few assignments; else as if sampling gave nothing.
UniformRouting by_sampling(const RouterHealth& h) {
  if (!h.few_assignments()) return {};
  return uniform_routing(h.experts, h.top_k, h.assignments);
}

// To a rule on dead experts or the entropy.
std::string sampling_text(const RouterHealth& h) {
  if (!h.few_assignments()) return "";
  const UniformRouting uniform = by_sampling(h);
  return strprintf(
      "; with %.2g assignments per expert in the window sampling alone leaves %.1f%% of the "
      "experts dead and an entropy of %.3f ln E: the shares of dead experts are of the others, and "
      "the entropy is compared with that",
      h.assignments / double(h.experts), 100 * uniform.dead_share, uniform.entropy_norm);
}

}  // namespace

std::string state_word(RouterState state) {
  std::string word = name_of(state);
  std::replace(word.begin(), word.end(), '_', ' ');
  return word;
}

std::optional<int64_t> RouterHealth::first_saturated() const {
  std::optional<int64_t> first;
  for (const LayerHealth& l : layers) {
    if (l.saturated_at) first = std::min(first.value_or(*l.saturated_at), *l.saturated_at);
  }
  return first;
}

bool RouterHealth::few_assignments() const {
  return assignments > 0 && experts > top_k && top_k > 0 &&
         assignments < kFewAssignments * double(experts);
}

std::string RouterHealth::text() const {
  std::string text = strprintf("K*max_load %.2f (layer %ld), %.1f%% of the experts dead",
                               worst_max_load_norm, long(worst_layer), 100 * dead_share);
  if (few_assignments()) {
    text += strprintf(" (sampling alone gives %.1f%%)", 100 * by_sampling(*this).dead_share);
  }
  return router_state(*this) == RouterState::kRestless ? text + "; " + steps_text() : text;
}

std::string RouterHealth::steps_text() const {
  if (!worst_steps) return "";
  const std::string text = strprintf(
      "at single steps K*max_load %.2f and cv %.0f%% of the mean load (layer %ld); sampling alone "
      "gives a cv of %.0f%%, loads swing by %.0f%%",
      worst_steps->max_load_norm, worst_steps->cv, long(worst_steps_layer), worst_steps->cv_floor,
      worst_steps->swing);
  if (!worst_steps->overlap) return text;
  return text + strprintf(", %.0f%% of the choices on fixed tokens stay from probe to probe",
                          100 * *worst_steps->overlap);
}

RouterHealth health_of(std::span<const LayerHealth> layers, int64_t experts, int64_t top_k) {
  RouterHealth health;
  health.experts = experts;
  health.top_k = top_k;
  const double limit = saturation_limit(experts, top_k);
  health.layers.assign(layers.begin(), layers.end());
  double cv_layers = 0;
  for (const LayerHealth& l : layers) {
    if (&l == layers.data() || l.max_load_norm > health.worst_max_load_norm) {
      health.worst_max_load_norm = l.max_load_norm;
      health.worst_layer = l.layer;
    }
    if (l.max_load_norm >= limit) health.saturated.push_back(l.layer);
    health.dead_share += (1 - l.active_norm) / double(layers.size());
    health.mean_cv_norm += l.cv_norm.value_or(0);
    cv_layers += l.cv_norm ? 1 : 0;
    add_steps(l, health);
    health.assignments = std::max(health.assignments, l.assignments);
    if (l.entropy_norm) {
      health.min_entropy_norm = std::min(health.min_entropy_norm, *l.entropy_norm);
    }
  }
  health.mean_cv_norm /= std::max(1.0, cv_layers);
  return health;
}

double load_excess(double max_load_norm, int64_t experts, int64_t top_k) {
  if (experts <= top_k) return 0;
  const double even = double(top_k) / double(experts);
  return std::clamp((max_load_norm - even) / (1 - even), 0.0, 1.0);
}

RouterJudgement judge_router(const RouterHealth& h) {
  if (h.stopped_by_guard) {
    return {RouterState::kCollapsed, "the run was stopped by its rule telemetry.collapse_stop"};
  }
  if (h.logged < h.window) {
    return {
        RouterState::kTooEarly,
        strprintf("%ld logged step%s, fewer than W = %ld (telemetry.window; a run that logs fewer "
                  "in all is judged if it begins with a smaller window)",
                  long(h.logged), h.logged == 1 ? "" : "s", long(h.window))};
  }
  if (h.experts > 0 && h.experts == h.top_k) {
    return {RouterState::kHealthy, "K = E: every expert is in every token's top-K"};
  }
  const UniformRouting uniform = by_sampling(h);
  const double dead = (h.dead_share - uniform.dead_share) / (1 - uniform.dead_share);
  if (!h.saturated.empty() || dead > kCollapsedDead) {
    return {RouterState::kCollapsed,
            strprintf("a layer with max_load >= %.3g / K, or more than %.0f%% of the experts dead",
                      saturation_limit(h.experts, h.top_k), 100 * kCollapsedDead) +
                sampling_text(h)};
  }
  const double excess = load_excess(h.worst_max_load_norm, h.experts, h.top_k);
  if (excess >= kUnevenExcess || dead > kUnevenDead ||
      h.min_entropy_norm < kUnevenEntropy * uniform.entropy_norm) {
    return {RouterState::kUneven,
            strprintf("the largest load is at least %.0f%% of the way from even to its ceiling, or "
                      "more than %.0f%% of the experts are dead, or an entropy is under %.1f ln E",
                      100 * kUnevenExcess, 100 * kUnevenDead, kUnevenEntropy) +
                sampling_text(h)};
  }
  if (!h.restless.empty()) {
    return {
        RouterState::kRestless,
        strprintf("even over the window, uneven at its single steps: there the loads of a layer "
                  "swing by at least %.3g%% of their mean around that of the window, or its "
                  "largest load is %.0f%% of the way to its ceiling above that of the window; "
                  "sampling alone gives less, and the choices on fixed tokens, if measured, change "
                  "by at least %g of the swing, or of %.0f%% where it is more; what batches hold "
                  "counts too",
                  restless_swing(h.experts, h.top_k), 100 * kRestlessExcess, kChangedChoices,
                  100 * kLargestTurns)};
  }
  if (h.first_saturated()) {
    return {RouterState::kRecovered, "even now; a layer was saturated earlier"};
  }
  return {RouterState::kHealthy,
          strprintf("largest load under %.0f%% of the way to its ceiling, at most %.0f%% of the "
                    "experts dead, every entropy at least %.1f ln E",
                    100 * kUnevenExcess, 100 * kUnevenDead, kUnevenEntropy) +
              sampling_text(h)};
}

}  // namespace assay
