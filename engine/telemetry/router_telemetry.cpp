#include "engine/telemetry/router_telemetry.h"

#include <algorithm>
#include <cmath>

namespace assay {

RouterAggregate aggregate(std::span<const RouterRow> layers) {
  RouterAggregate a;
  if (layers.empty()) return a;
  const double n = double(layers.size());
  a.entropy_min = layers[0].step.entropy;
  for (const RouterRow& layer : layers) {
    const RouterStats& s = layer.step;
    a.cv_mean += s.cv / n;
    a.entropy_mean += s.entropy / n;
    a.entropy_min = std::min(a.entropy_min, s.entropy);
    a.max_load_mean += s.max_load / n;
    a.max_load_max = std::max(a.max_load_max, s.max_load);
  }
  for (const RouterRow& layer : layers) {
    const double off = layer.step.cv - a.cv_mean;
    a.cv_std += off * off / n;
  }
  a.cv_std = std::sqrt(a.cv_std);
  return a;
}

RouterTelemetry::Layer::Layer(int64_t experts, int64_t window)
    : dead(experts, window),
      window_sum(static_cast<size_t>(experts), 0),
      history(static_cast<size_t>(experts * window), 0) {}

namespace {

std::vector<int64_t> block_indices(Model& model) {
  std::vector<int64_t> layers;
  for (const RouterLayerState& state : model.router_layers()) layers.push_back(state.layer);
  return layers;
}

}  // namespace

RouterTelemetry::RouterTelemetry(Model& model, const Config& config, const RouterProbe& probe)
    : window_(config.telemetry.window),
      probe_(probe),
      guard_(config.telemetry.collapse_stop, block_indices(model), config.run.steps) {
  int64_t choices = 0;
  for (const RouterLayerState& state : model.router_layers()) {
    layers_.emplace_back(state.counts.dim[0], window_);
    top_k_ = state.top_k;
    choices += probe.tokens.token.dim[0] * state.top_k;
  }
  before_.resize(static_cast<size_t>(choices));
  now_.resize(static_cast<size_t>(choices));
}

void RouterTelemetry::add(Layer& layer, View<const int64_t, 1> counts) {
  const int64_t experts = counts.dim[0];
  uint32_t* oldest = layer.history.data() + (logged_ % window_) * experts;
  for (int64_t e = 0; e < experts; ++e) {
    layer.window_sum[size_t(e)] += counts[e] - int64_t{oldest[e]};
    oldest[e] = static_cast<uint32_t>(counts[e]);
  }
  layer.dead.add(counts);
}

void RouterTelemetry::replay(const std::vector<std::vector<uint32_t>>& counts) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    const std::vector<int64_t> wide(counts[l].begin(), counts[l].end());
    add(layers_[l], {wide.data(), {int64_t(wide.size())}});
  }
  logged_ += 1;
}

std::span<const int32_t> RouterTelemetry::last_probe() const {
  return probed_ ? std::span<const int32_t>(before_) : std::span<const int32_t>();
}

void RouterTelemetry::set_last_probe(std::span<const int32_t> choices) {
  if (choices.empty() || choices.size() != before_.size()) return;
  std::copy(choices.begin(), choices.end(), before_.begin());
  probed_ = true;
}

void RouterTelemetry::observe(Exec on, Model& model, int64_t step, std::vector<RouterRow>& rows) {
  // Read before the probe, which runs the model again.
  const std::vector<RouterLayerState>& states = model.router_layers();
  for (size_t l = 0; l < layers_.size(); ++l) {
    const RouterLayerState& state = states[l];
    Layer& layer = layers_[l];
    const int64_t experts = state.counts.dim[0];
    add(layer, state.counts);
    RouterRow& row = rows[l];
    row.layer = state.layer;
    row.step = router_stats(state.counts, state.top_k);
    row.window = router_stats({layer.window_sum.data(), {experts}}, state.top_k);
    row.dead_for = row.dead_for_norm = std::nullopt;
    if (const std::optional<int64_t> dead = layer.dead.dead()) {
      row.dead_for = double(*dead);
      row.dead_for_norm = double(*dead) / double(experts);
    }
    if (!state.bias.empty()) row.bias_range = bias_range(state.bias);
    row.margin = state.margin;
    row.lead = state.lead;
    row.gate_entropy = state.gate_entropy_nats;
    row.gate_entropy_norm = gate_entropy_norm(state.gate_entropy_nats, state.top_k);
    row.overlap = std::nullopt;
  }
  if (probe_due()) probe_overlap(on, model, rows);
  guard_.observe(step, rows);
  logged_ += 1;
}

void RouterTelemetry::join_probe(Exec on, Model& model) {
  const int64_t tokens = probe_.tokens.token.dim[0];
  model.route(on, probe_.tokens, {now_.data(), {int64_t(layers_.size()), tokens * top_k_}});
}

void RouterTelemetry::probe_overlap(Exec on, Model& model, std::vector<RouterRow>& rows) {
  const int64_t tokens = probe_.tokens.token.dim[0], layers = int64_t(layers_.size());
  model.route(on, probe_.tokens, {now_.data(), {layers, tokens * top_k_}});
  if (probed_) {
    for (int64_t l = 0; l < layers; ++l) {
      const int64_t first = l * tokens * top_k_;
      rows[size_t(l)].overlap = router_overlap({before_.data() + first, {tokens, top_k_}},
                                               {now_.data() + first, {tokens, top_k_}});
    }
  }
  std::swap(before_, now_);
  probed_ = true;
}

}  // namespace assay
