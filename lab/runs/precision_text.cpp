#include "lab/runs/precision_text.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "engine/config/yaml.h"
#include "engine/run/run_dir.h"
#include "lab/runs/text_table.h"
#include "models/linear/precision.h"

namespace assay {

namespace {

FormatLoss& loss_of(std::vector<FormatLoss>& losses, const OperandSite& site) {
  const auto found = std::find_if(losses.begin(), losses.end(), [&](const FormatLoss& l) {
    return l.role == site.role && l.operand == site.operand && l.format == site.format;
  });
  if (found != losses.end()) return *found;
  losses.push_back({.role = site.role, .operand = site.operand, .format = site.format});
  return losses.back();
}

std::string percent(double share) {
  return strprintf("%.3f%%", 100 * share);
}
std::string scale(double value) {
  return std::isnan(value) ? "-" : strprintf("%.4g", value);
}
nlohmann::json or_null(double value) {
  return std::isnan(value) ? nlohmann::json() : nlohmann::json(value);
}

std::string scales_text(const PrecisionReport& report) {
  TextTable table({"role", "operand", "format", "smallest scale", "largest", "blocks", "all 0",
                   "scale low", "scale high", "flips"});
  for (const FormatLoss& l : report.losses) {
    if (std::isnan(l.blocks)) return "";
    table.add({l.role, l.operand, l.format, scale(l.scale_min), scale(l.scale_max),
               strprintf("%.0f", l.blocks), strprintf("%.0f", l.zero_blocks),
               strprintf("%.0f", l.low_scales), strprintf("%.0f", l.high_scales),
               std::isnan(l.flips) ? "-" : percent(l.flips)});
  }
  return "\n" + table.text() +
         "scale: decoded scale of a block; low, high: blocks whose scale is at an end of its "
         "format; "
         "flips: codes that the step's update changed\n";
}

}  // namespace

std::vector<FormatLoss> format_losses(const std::vector<OperandValue>& values) {
  std::vector<FormatLoss> losses;
  for (const OperandValue& value : values) {
    FormatLoss& loss = loss_of(losses, value.site);
    loss.tensors += 1;
    loss.flushed += value.loss.flushed;
    loss.saturated += value.loss.saturated;
    loss.error += value.loss.error;
    loss.flips += value.loss.flips;
    loss.blocks += value.loss.blocks;
    loss.zero_blocks += value.loss.zero_blocks;
    loss.low_scales += value.loss.low_scales;
    loss.high_scales += value.loss.high_scales;
    loss.scale_min = std::fmin(loss.scale_min, value.loss.scale_min);  // ignores NaN
    loss.scale_max = std::fmax(loss.scale_max, value.loss.scale_max);
    if (loss.worst_weight.empty() || value.loss.error > loss.worst_error) {
      loss.worst_error = value.loss.error;
      loss.worst_weight = value.site.weight;
    }
  }
  for (FormatLoss& loss : losses) {
    for (double* sum : {&loss.flushed, &loss.saturated, &loss.error, &loss.flips}) {
      *sum /= double(loss.tensors);
    }
  }
  return losses;
}

namespace {

[[noreturn]] void throw_without_measures(const std::string& run) {
  const Config config = load_config((std::filesystem::path(run) / "config.yaml").string());
  const bool quantises =
      is_quantised_recipe(config.precision.recipe) || !config.precision.override_.empty();
  throw UserError(
      run + " has no measures of number formats",
      quantises
          ? strprintf("it quantises, but took no sampled step: these are every %ld-th step of "
                      "run.log_every (telemetry.probe_every), and only where a block is not "
                      "in bf16 (precision.bf16_tail: the last steps are)",
                      long(config.telemetry.probe_every))
          : "a recipe such as precision.recipe: mxfp8 records them at every "
            "telemetry.probe_every-th step of run.log_every");
}

}  // namespace

PrecisionReport precision_report(const std::string& run, std::optional<int64_t> step) {
  const TelemetryReader reader(telemetry_file(require_run(run)));
  PrecisionReport report{.run = run, .steps = reader.precision_steps()};
  if (report.steps.empty()) throw_without_measures(run);
  const int64_t wanted = step.value_or(report.steps.back());
  report.step = *std::min_element(
      report.steps.begin(), report.steps.end(),
      [&](int64_t a, int64_t b) { return std::abs(a - wanted) < std::abs(b - wanted); });
  report.losses = format_losses(reader.precision(report.step));
  return report;
}

std::string precision_report_text(const PrecisionReport& report) {
  TextTable table(
      {"role", "operand", "format", "tensors", "flushed", "saturated", "error", "worst", "of"});
  for (const FormatLoss& l : report.losses) {
    table.add({l.role, l.operand, l.format, std::to_string(l.tensors), percent(l.flushed),
               percent(l.saturated), percent(l.error), percent(l.worst_error), l.worst_weight});
  }
  return strprintf("%s, step %ld of %zu sampled from %ld to %ld\n", report.run.c_str(),
                   long(report.step), report.steps.size(), long(report.steps.front()),
                   long(report.steps.back())) +
         table.text() +
         "flushed: values that became 0; saturated: values beyond the format's largest; error: RMS "
         "error over RMS of the operand\n" +
         scales_text(report);
}

nlohmann::ordered_json precision_report_json(const PrecisionReport& report) {
  nlohmann::ordered_json json;
  json["run"] = report.run;
  json["step"] = report.step;
  json["steps"] = report.steps;
  json["losses"] = nlohmann::ordered_json::array();
  for (const FormatLoss& l : report.losses) {
    nlohmann::ordered_json row;
    row["role"] = l.role;
    row["operand"] = l.operand;
    row["format"] = l.format;
    row["tensors"] = l.tensors;
    row["flushed"] = l.flushed;
    row["saturated"] = l.saturated;
    row["error"] = l.error;
    row["worst_error"] = l.worst_error;
    row["worst_weight"] = l.worst_weight;
    row["scale_min"] = or_null(l.scale_min);
    row["scale_max"] = or_null(l.scale_max);
    row["blocks"] = or_null(l.blocks);
    row["zero_blocks"] = or_null(l.zero_blocks);
    row["low_scales"] = or_null(l.low_scales);
    row["high_scales"] = or_null(l.high_scales);
    row["flips"] = or_null(l.flips);
    json["losses"].push_back(row);
  }
  return json;
}

}  // namespace assay
