// What telemetry.db holds: tables and, once, the columns of a MoE layer's row. The writer, the
// reader and the reports are loops over these lists.
//
//   scalar(step, name, value)            span(step, name, milliseconds)      eval(step, task, metric, value, n)
//   router_layer(step, layer, cv, ...)   expert_load(step, layer, counts)    event(step, time, kind, detail)
//   precision(step, layer, weight, operand, role, format, flushed, ...)      meta(key, value)
//
// step counts optimizer steps done, from 1; layer is a block index; counts is packed by
// engine/telemetry/expert_load_codec.h.
//
// Versions: 1 had the load vectors as plain zstd; 3 has the table precision, 4 its scales and
// flips. A program reads every version up to its own (a column that was not there yet is absent)
// and refuses later ones; a run that goes on gets the columns it lacks and the version of now.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>

#include "engine/telemetry/router_stats.h"

namespace assay {

inline constexpr int kTelemetryVersion = 4;

// One MoE layer at one logged step. Formulas: docs/numerics.md (router telemetry). What is absent
// is NULL.
struct RouterRow {
  int64_t layer = 0;  // block index
  RouterStats step;
  RouterStats window;  // over the last W logged steps
  std::optional<double> dead_for, dead_for_norm;
  std::optional<double> bias_range;
  std::optional<double> margin, lead;
  std::optional<double> gate_entropy, gate_entropy_norm;
  std::optional<double> overlap;
};

// One operand of a product that a recipe quantises.
struct OperandSite {
  int64_t layer = 0;  // block index
  std::string weight, operand, role, format;
};
// What quantisation made of it in a sampled step. NaN = not measured; no row where flushed is.
inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
struct OperandLoss {
  double flushed = kNotMeasured;      // share of its numbers that are not 0 and became 0
  double saturated = kNotMeasured;    // share beyond the largest element
  double error = kNotMeasured;        // RMS of the error over RMS of the operand
  double blocks = kNotMeasured;       // how many have a scale
  double zero_blocks = kNotMeasured;  // amax 0
  double low_scales = kNotMeasured;   // amax > 0, at the format's smallest scale or 0
  double high_scales = kNotMeasured;  // at its largest
  double scale_min = kNotMeasured, scale_max = kNotMeasured;  // decoded, of blocks with amax > 0
  double flips = kNotMeasured;  // of a weight: share of its codes that the step's update changed
};
struct PrecisionColumn {
  const char* name;
  double OperandLoss::*value;
};
// Columns of the table precision after its site.
std::span<const PrecisionColumn> precision_columns();

struct RouterColumn {
  const char* name;
  double (*value)(const RouterRow&);  // NaN = absent
};

// Every measure raw and normalised, of the step and (window_*) of the last W logged steps.
std::span<const RouterColumn> router_columns();

// CREATE TABLE IF NOT EXISTS of everything.
std::string telemetry_schema();

}  // namespace assay
