// Quantisation losses of a run by role, operand and format, over the weights and layers that have
// them.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "engine/telemetry/reader.h"

namespace assay {

struct FormatLoss {
  std::string role, operand, format;
  int64_t tensors = 0;
  double flushed = 0, saturated = 0, error = 0;  // means over the tensors
  double worst_error = 0;
  std::string worst_weight = {};
  // Over all tensors; NaN in a run of an earlier version.
  double blocks = 0, zero_blocks = 0, low_scales = 0, high_scales = 0;  // sums
  double scale_min = kNotMeasured, scale_max = kNotMeasured;  // NaN also if every block is 0
  double flips = 0;  // mean over the tensors; NaN for operands that are not weights
};

// By role, operand and format, in the order of the values.
std::vector<FormatLoss> format_losses(const std::vector<OperandValue>& values);

struct PrecisionReport {
  std::string run;
  int64_t step = 0;
  std::vector<int64_t> steps;  // all sampled steps
  std::vector<FormatLoss> losses = {};
};

// At the sampled step nearest to `step`, by default the last. UserError if nothing was quantised.
PrecisionReport precision_report(const std::string& run, std::optional<int64_t> step);

std::string precision_report_text(const PrecisionReport& report);
nlohmann::ordered_json precision_report_json(const PrecisionReport& report);

}  // namespace assay
