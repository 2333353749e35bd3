// The tables of telemetry.db, and the only lists of the columns of a MoE layer's row and of an
// operand's row. The writer, the reader and the reports loop over these lists.
//
//   scalar(step, name, value)            span(step, name, milliseconds)
//   eval(step, task, metric, value, n)   event(step, time, kind, detail)
//   router_layer(step, layer, cv, ...)   expert_load(step, layer, counts)
//   precision(step, layer, weight, operand, role, format, flushed, ...)
//   rank_step(step, rank, step_ms, wait_ms, bytes_sent, peak_rss_bytes)
//   meta(key, value)
//
// step counts optimizer steps done, from 1; layer is a block index; counts is packed by
// engine/telemetry/expert_load_codec.h.
//
// Versions: 1 had the load vectors as plain zstd; 3 has the table precision, 4 its scales and
// flips, 5 the table rank_step. A program reads every version up to its own (missing columns are
// absent) and refuses later ones; resuming a run adds the missing columns and sets the current
// version.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>

#include "engine/telemetry/router_stats.h"

namespace assay {

class Database;

inline constexpr int kTelemetryVersion = 5;

// One MoE layer at one logged step. Formulas: docs/numerics.md (router telemetry). Absent values
// are NULL in the table.
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
// The quantisation errors of an operand in a sampled step. NaN = not measured; if flushed is NaN no
// row is written.
inline constexpr double kNotMeasured = std::numeric_limits<double>::quiet_NaN();
struct OperandLoss {
  double flushed = kNotMeasured;      // share of values that are not 0 and became 0
  double saturated = kNotMeasured;    // share of values beyond the largest element
  double error = kNotMeasured;        // RMS of the error over RMS of the operand
  double blocks = kNotMeasured;       // number of blocks
  double zero_blocks = kNotMeasured;  // number of blocks with amax 0
  double low_scales = kNotMeasured;   // with amax > 0 and the format's smallest scale or 0
  double high_scales = kNotMeasured;  // with the format's largest scale
  double scale_min = kNotMeasured, scale_max = kNotMeasured;  // decoded, of blocks with amax > 0
  double flips = kNotMeasured;  // weights only: share of codes that the step's update changed
};
struct PrecisionColumn {
  const char* name;
  double OperandLoss::*value;
};
// The columns of the table precision after the operand's site.
std::span<const PrecisionColumn> precision_columns();

// What a rank did in a logged step of a run with several ranks; ranks send it to each other.
struct RankStep {
  double step_ms = 0;
  double wait_ms = 0;          // of step_ms, inside calls of the rank's groups (comm/group.h)
  int64_t bytes_sent = 0;      // in the step, over all groups
  int64_t peak_rss_bytes = 0;  // largest resident memory of the process so far
};

struct RouterColumn {
  const char* name;
  double (*value)(const RouterRow&);  // NaN = absent
};

// The columns of router_layer: measures, raw and normalised, of the step and (window_*) of the last
// W logged steps.
std::span<const RouterColumn> router_columns();

// The SQL that creates the missing tables.
std::string telemetry_schema();

// UserError if the database has what no version of this schema had and SQLite evaluates while it
// reads or writes: views, triggers, virtual tables, indices of expressions or with a condition,
// computed columns, default values.
void require_plain_tables(const Database& database);

}  // namespace assay
