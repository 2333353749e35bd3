#include "lab/page/precision.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "lab/page/series.h"
#include "lab/runs/precision_text.h"

namespace assay {

namespace {

using Json = nlohmann::ordered_json;

struct LossOfFormat {
  const char* name;
  double (*of)(const FormatLoss&);
};
constexpr LossOfFormat kMeasures[] = {
    {"error", [](const FormatLoss& l) { return l.error; }},
    {"flushed", [](const FormatLoss& l) { return l.flushed; }},
    {"saturated", [](const FormatLoss& l) { return l.saturated; }},
    {"flips", [](const FormatLoss& l) { return l.flips; }},
    {"zero_blocks", [](const FormatLoss& l) { return l.zero_blocks / l.blocks; }},
    {"low_scales", [](const FormatLoss& l) { return l.low_scales / l.blocks; }},
    {"high_scales", [](const FormatLoss& l) { return l.high_scales / l.blocks; }},
    {"scale_min", [](const FormatLoss& l) { return l.scale_min; }},
    {"scale_max", [](const FormatLoss& l) { return l.scale_max; }},
};

// The row of the loss's role, operand and format; a new row has null at every step.
Json& row_of(Json& rows, const FormatLoss& loss, size_t steps) {
  const auto found = std::find_if(rows.begin(), rows.end(), [&](const Json& row) {
    return row["role"] == loss.role && row["operand"] == loss.operand &&
           row["format"] == loss.format;
  });
  if (found != rows.end()) return *found;
  Json row;
  row["role"] = loss.role;
  row["operand"] = loss.operand;
  row["format"] = loss.format;
  row["tensors"] = loss.tensors;
  row["values"] = Json::object();
  for (const LossOfFormat& m : kMeasures) row["values"][m.name] = Json(steps, Json());
  rows.push_back(std::move(row));
  return rows.back();
}

void drop_absent(Json& row) {
  for (const LossOfFormat& m : kMeasures) {
    const Json& values = row["values"][m.name];
    const bool absent =
        std::all_of(values.begin(), values.end(), [](const Json& v) { return v.is_null(); });
    if (absent) row["values"].erase(m.name);
  }
}

}  // namespace

Json report_precision(const TelemetryReader& telemetry, const ReportLimits& limits) {
  const std::vector<int64_t> all = telemetry.precision_steps();
  if (all.empty()) return nullptr;
  const std::vector<int64_t> steps = evenly_chosen(all, limits.measure_steps);
  Json json;
  json["steps"] = steps;
  json["of"] = all.size();
  Json rows = Json::array();
  for (size_t s = 0; s < steps.size(); ++s) {
    for (const FormatLoss& loss : format_losses(telemetry.precision(steps[s]))) {
      Json& row = row_of(rows, loss, steps.size());
      for (const LossOfFormat& m : kMeasures) {
        row["values"][m.name][s] = short_number(m.of(loss), kMeasureDigits);
      }
    }
  }
  for (Json& row : rows) drop_absent(row);
  json["rows"] = std::move(rows);
  return json;
}

}  // namespace assay
