// A run's telemetry as one event file of TensorBoard.
#pragma once

#include <string>

#include "lab/telemetry/tables.h"

namespace assay {

// "train/loss" of the column train_loss_nats of steps; "" = not a curve (hash).
std::string step_tag(const std::string& column);
// "val/loss" of task val, metric loss_nats.
std::string evaluation_tag(const std::string& task, const std::string& metric);
// "router/layer_01/max_load"; "" for columns that only repeat others in another window or form.
std::string router_tag(int64_t layer, const std::string& column);
// "precision/layer_01/experts.up.weight/fprop.weight/error"
std::string precision_tag(int64_t layer, const std::string& weight, const std::string& operand,
                          const std::string& column);
// "ranks/rank_003/wait_ms"
std::string rank_tag(int64_t rank, const std::string& column);

// Names of event files that write_events() makes begin and end so; the time of the first event
// stands between.
inline constexpr const char* kEventFileStart = "events.out.tfevents.";
inline constexpr const char* kEventFileEnd = ".assay";

// Writes the event file into the folder, complete or not at all, and returns its path. Wall times
// are those of the recorded events (checkpoint, resume, end); between them they follow the seconds
// of training, and they never go back. UserError if nothing was logged.
std::string write_events(const TelemetryTables& tables, const std::string& folder);

}  // namespace assay
