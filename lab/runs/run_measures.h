// Numbers of a run by name: what a claim of a matrix can be about, and what its table of routers
// shows. Loads, cv and entropies are those of the last W logged steps (telemetry.window),
// normalised, and means over layers unless the name says otherwise: docs/matrix.md.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"

namespace assay {

struct RunMeasure {
  const char* name;
  const char* says;
  std::optional<double> (*of)(const RunRecord&);  // nothing where the run does not have it
};

const std::vector<RunMeasure>& run_measures();
const RunMeasure* find_run_measure(const std::string& name);  // null: there is none

// The layers that saturate first, block indices: several at one step; none when no layer saturates.
std::vector<int64_t> first_saturated_layers(const RunRecord& run);

}  // namespace assay
