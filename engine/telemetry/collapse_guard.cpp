#include "engine/telemetry/collapse_guard.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "base/check.h"

namespace assay {

std::vector<std::string> collapse_measures() {
  std::vector<std::string> names;
  for (const RouterColumn& column : router_columns()) {
    const std::string_view name = column.name;
    const bool of_loads = !name.starts_with("gate_");
    if (of_loads && (name.ends_with("_norm") || name.ends_with("gini"))) names.emplace_back(name);
  }
  return names;
}

int64_t first_counted_step(const CollapseStopConfig& rule, int64_t steps) {
  constexpr double kRounding = 1e-12;
  return int64_t(std::ceil(rule.from.value_or(0) * double(steps) * (1 - kRounding)));
}

CollapseGuard::CollapseGuard(const std::optional<CollapseStopConfig>& rule,
                             std::vector<int64_t> layers, int64_t steps)
    : rule_(rule),
      layers_(std::move(layers)),
      values_(layers_.size(), std::numeric_limits<double>::quiet_NaN()),
      streak_(layers_.size(), 0) {
  if (!rule_) return;
  first_ = first_counted_step(*rule_, steps);
  const auto columns = router_columns();
  const auto found = std::find_if(columns.begin(), columns.end(),
                                  [&](const RouterColumn& c) { return rule_->measure == c.name; });
  CHECK(found != columns.end(), "no measure %s", rule_->measure.c_str());
  column_ = *found;
}

bool CollapseGuard::beyond(double value) const {
  if (rule_->at_least) return value >= *rule_->at_least;
  return value <= rule_->at_most.value_or(-1);
}

void CollapseGuard::add() {
  mean_ = 0;
  for (size_t l = 0; l < layers_.size(); ++l) {
    streak_[l] = beyond(values_[l]) ? streak_[l] + 1 : 0;
    mean_ += values_[l] / double(layers_.size());
  }
  mean_streak_ = beyond(mean_) ? mean_streak_ + 1 : 0;
}

void CollapseGuard::observe(int64_t step, std::span<const RouterRow> rows) {
  if (!rule_ || layers_.empty() || step < first_) return;
  CHECK(rows.size() == layers_.size(), "%zu rows of %zu layers", rows.size(), layers_.size());
  for (size_t l = 0; l < rows.size(); ++l) values_[l] = column_.value(rows[l]);
  add();
}

void CollapseGuard::observe(int64_t step, std::span<const LayerValue> values) {
  if (!rule_ || layers_.empty() || step < first_) return;
  std::fill(values_.begin(), values_.end(), std::numeric_limits<double>::quiet_NaN());
  for (const LayerValue& v : values) {
    const auto at = std::find(layers_.begin(), layers_.end(), v.layer);
    if (at != layers_.end()) values_[size_t(at - layers_.begin())] = v.value;
  }
  add();
}

void CollapseGuard::replay(const TelemetryReader& telemetry) {
  if (!rule_ || layers_.empty()) return;
  const std::vector<StepValue> logged = telemetry.scalar("train_loss_nats");
  const size_t count = std::min(logged.size(), size_t(rule_->logged_steps));
  for (size_t i = logged.size() - count; i < logged.size(); ++i) {
    observe(logged[i].step, telemetry.router(rule_->measure, logged[i].step));
  }
}

size_t CollapseGuard::deciding_layer() const {
  const auto at = rule_->layers == CollapseLayers::kAll
                      ? std::min_element(streak_.begin(), streak_.end())
                      : std::max_element(streak_.begin(), streak_.end());
  return size_t(at - streak_.begin());
}

bool CollapseGuard::holds() const {
  if (!rule_ || layers_.empty()) return false;
  const int64_t streak =
      rule_->layers == CollapseLayers::kMean ? mean_streak_ : streak_[deciding_layer()];
  return streak >= rule_->logged_steps;
}

std::string CollapseGuard::because() const {
  if (!rule_ || layers_.empty()) return "";
  const size_t layer = deciding_layer();
  std::string text = rule_->measure;
  double value = mean_;
  if (rule_->layers == CollapseLayers::kMean) {
    text += " in the mean over the layers";
  } else {
    value = values_[layer];
    text +=
        strprintf(" of %slayer %ld", rule_->layers == CollapseLayers::kAll ? "every layer, " : "",
                  long(layers_[layer]));
  }
  text += strprintf(" is %.3f, at %s %g for %ld logged step%s", value,
                    rule_->at_least ? "least" : "most",
                    rule_->at_least.value_or(rule_->at_most.value_or(0)), long(rule_->logged_steps),
                    rule_->logged_steps == 1 ? "" : "s");
  if (first_ > 0) text += strprintf(", counted from step %ld on", long(first_));
  return text;
}

}  // namespace assay
