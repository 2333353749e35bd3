#include "lab/page/router.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>

#include "base/math.h"
#include "engine/telemetry/router_stats.h"
#include "engine/telemetry/sqlite.h"
#include "lab/page/series.h"
#include "lab/router/text.h"

namespace assay {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kCcdfPoints = 160;

std::vector<int64_t> steps_of(const Database& database, const std::string& table) {
  Statement s(database, "SELECT DISTINCT step FROM " + table + " ORDER BY step");
  std::vector<int64_t> steps;
  while (s.step()) steps.push_back(s.integer(0));
  return steps;
}

// Columns as the database declares them: another version may measure more, or less.
std::vector<std::string> measure_columns(const Database& database) {
  Statement s(database, "SELECT name FROM pragma_table_info('router_layer') WHERE pk = 0");
  std::vector<std::string> names;
  while (s.step()) names.push_back(s.text(0));
  return names;
}

struct MeasuredSteps {
  std::vector<int64_t> steps;
  std::vector<std::vector<double>> peaks;  // of peaks_chosen()
};

// The peaks: over the layers, the lowest (negated) and the highest load of the busiest expert, and
// the most dead experts.
MeasuredSteps measured_steps(const Database& database, const std::vector<std::string>& names) {
  constexpr std::pair<const char*, const char*> kPeaks[] = {
      {"max_load_norm", "-min(max_load_norm)"},
      {"max_load_norm", "max(max_load_norm)"},
      {"dead_for_norm", "max(dead_for_norm)"}};
  MeasuredSteps measured;
  std::string select = "SELECT step";
  for (const auto& [name, peak] : kPeaks) {
    if (std::find(names.begin(), names.end(), name) == names.end()) continue;
    select += std::string(", ") + peak;
    measured.peaks.emplace_back();
  }
  Statement s(database, select + " FROM router_layer GROUP BY step ORDER BY step");
  while (s.step()) {
    measured.steps.push_back(s.integer(0));
    for (size_t p = 0; p < measured.peaks.size(); ++p) {
      const int column = int(p) + 1;
      measured.peaks[p].push_back(s.is_null(column) ? std::nan("") : s.number(column));
    }
  }
  return measured;
}

// whole_window: RouterHistory::first_whole_window(), before which no expert is known to be dead,
// although earlier versions recorded 0.
Json measures_json(const Database& database, const std::vector<int64_t>& layers, int64_t columns,
                   const std::optional<int64_t>& whole_window) {
  const std::vector<std::string> names = measure_columns(database);
  const MeasuredSteps logged = measured_steps(database, names);
  const std::vector<int64_t> steps = peaks_chosen(logged.steps, logged.peaks, columns);
  std::string select = "SELECT layer";
  for (const std::string& name : names) select += ", " + quoted_name(name);
  Statement s(database, select + " FROM router_layer WHERE step = ? ORDER BY layer");
  std::vector<Json> values(names.size(),
                           Json(layers.size(), Json(steps.size(), nullptr)));  // [layer][step]
  std::vector<char> present(names.size(), 0);
  for (size_t at = 0; at < steps.size(); ++at) {
    s.reset();
    s.bind(0, steps[at]);
    const bool dead_known = whole_window && steps[at] >= *whole_window;
    while (s.step()) {
      const auto layer = std::find(layers.begin(), layers.end(), s.integer(0));
      if (layer == layers.end()) continue;
      for (size_t c = 0; c < names.size(); ++c) {
        if (s.is_null(int(c) + 1)) continue;
        if (!dead_known && names[c].starts_with("dead_for")) continue;
        values[c][size_t(layer - layers.begin())][at] =
            short_number(s.number(int(c) + 1), kMeasureDigits);
        present[c] = 1;
      }
    }
  }
  Json json;
  json["steps"] = steps;
  json["of"] = logged.steps.size();
  json["values"] = Json::object();
  for (size_t c = 0; c < names.size(); ++c) {
    if (present[c]) json["values"][names[c]] = std::move(values[c]);
  }
  return json;
}

Json binned(const std::vector<uint32_t>& counts, int64_t bin) {
  Json sums = Json::array();
  for (size_t from = 0; from < counts.size(); from += size_t(bin)) {
    const size_t to = std::min(counts.size(), from + size_t(bin));
    sums.push_back(std::accumulate(counts.begin() + std::ptrdiff_t(from),
                                   counts.begin() + std::ptrdiff_t(to), uint64_t{0}));
  }
  return sums;
}

Json loads_json(const TelemetryReader& telemetry, const std::vector<int64_t>& layers,
                int64_t experts, const ReportLimits& limits) {
  const std::vector<int64_t> logged = steps_of(telemetry.database(), "expert_load");
  const std::vector<int64_t> steps = early_chosen(logged, limits.load_steps);
  const int64_t bin = ceil_div(experts, limits.load_bins);
  Json by_id = Json::array(), sorted = Json::array(), unused = Json::array();
  for (const int64_t step : steps) {
    Json of_id = Json::array(), of_sorted = Json::array(), of_unused = Json::array();
    for (const int64_t layer : layers) {
      std::vector<uint32_t> counts = telemetry.expert_load(step, layer);
      of_id.push_back(binned(counts, bin));
      of_unused.push_back(std::count(counts.begin(), counts.end(), 0u));
      std::sort(counts.begin(), counts.end(), std::greater<>());
      of_sorted.push_back(binned(counts, bin));
    }
    by_id.push_back(std::move(of_id));
    unused.push_back(std::move(of_unused));
    if (bin > 1) sorted.push_back(std::move(of_sorted));  // otherwise the page sorts
  }
  Json json;
  json["steps"] = steps;
  json["of"] = logged.size();
  json["bin"] = bin;
  json["by_id"] = std::move(by_id);
  json["sorted"] = bin > 1 ? std::move(sorted) : Json(nullptr);
  json["unused"] = std::move(unused);
  return json;
}

// Points (x, share of the experts with a load of at least x), x ascending; loads are multiples of
// the mean.
Json ccdf_json(std::vector<double> loads, const Json& layer) {
  std::sort(loads.begin(), loads.end(), std::greater<>());
  const size_t size = loads.size();
  Json load = Json::array(), share = Json::array();
  size_t before = size;
  for (size_t i = kCcdfPoints; i-- > 0;) {  // ranks evenly spaced on a logarithmic scale
    const double at = std::exp(std::log(double(size)) * double(i) / double(kCcdfPoints - 1));
    size_t rank = std::min(size, size_t(std::llround(at))) - 1;
    // Equal loads are one point, at the last of them; a load of 0 is left out, because the axis is
    // logarithmic.
    while (rank + 1 < size && loads[rank + 1] == loads[rank]) ++rank;
    if (rank == before || loads[rank] <= 0) continue;
    before = rank;
    load.push_back(short_number(loads[rank], kMeasureDigits));
    share.push_back(short_number(double(rank + 1) / double(size), kMeasureDigits));
  }
  Json json;
  json["layer"] = layer;
  json["load"] = std::move(load);
  json["share"] = std::move(share);
  return json;
}

// One curve per layer, then one of all layers together ("layer": null).
Json tails_json(const RouterHistory& history) {
  Json json = Json::array();
  std::vector<double> all;
  for (const LayerHistory& layer : history.layers) {
    const double sum = std::accumulate(layer.window_counts.begin(), layer.window_counts.end(), 0.0);
    if (sum <= 0) continue;
    std::vector<double> loads;
    for (const uint64_t count : layer.window_counts) {
      loads.push_back(double(count) * double(layer.window_counts.size()) / sum);
    }
    all.insert(all.end(), loads.begin(), loads.end());
    json.push_back(ccdf_json(std::move(loads), layer.layer));
  }
  if (!all.empty()) json.push_back(ccdf_json(std::move(all), nullptr));
  return json;
}

}  // namespace

Json report_router(const RunRecord& run, const TelemetryReader& telemetry,
                   const ReportLimits& limits) {
  if (!run.config.model.moe || run.last_logged == 0) return nullptr;
  const RouterHistory history =
      read_router_history(telemetry, run.config.model.moe->top_k, run.config.telemetry.window);
  if (history.layers.empty()) return nullptr;
  const RouterAnalysis analysis =
      analyse_router(run, history, telemetry.scalar("train_loss_nats"), {});
  std::vector<int64_t> layers;
  for (const LayerHistory& layer : history.layers) layers.push_back(layer.layer);

  Json json;
  json["experts"] = analysis.experts;
  json["top_k"] = analysis.top_k;
  json["window"] = analysis.window;
  json["layers"] = layers;
  const double limit = saturation_limit(analysis.experts, analysis.top_k);
  if (std::isfinite(limit)) json["saturation_limit"] = limit;
  json["cv_ceiling"] = short_number(analysis.cv_ceiling, kCurveDigits);
  json["max_load_ceiling"] = short_number(analysis.max_load_ceiling, kCurveDigits);
  json["entropy_ceiling"] = short_number(analysis.entropy_ceiling, kCurveDigits);
  json["measures"] = measures_json(telemetry.database(), layers, limits.measure_steps,
                                   history.first_whole_window());
  json["loads"] = loads_json(telemetry, layers, analysis.experts, limits);
  json["ccdf"] = tails_json(history);
  json["analysis"] = router_json(analysis);
  json["analysis"].erase("steps");
  return json;
}

}  // namespace assay
