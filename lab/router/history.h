// What the routers of a run did at every logged step, read back from its telemetry: measures by
// layer, and what follows from the load vectors. Reads a run that is still going on.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/telemetry/reader.h"

namespace assay {

// One expert that has no assignment in the last W logged steps.
struct DeadExpert {
  int64_t expert = 0;
  int64_t last_used = 0;  // step; 0: at no logged step
};

struct LayerHistory {
  int64_t layer = 0;                                           // block index
  std::map<std::string, std::vector<StepValue>> measure = {};  // columns of router_layer
  std::vector<uint64_t> window_counts = {};                    // (E) of the last W logged steps
  std::vector<DeadExpert> dead = {};                           // by expert
  std::vector<StepValue> turnover = {};                        // from the logged step before

  std::optional<double> at(const std::string& name, int64_t step) const;
  std::optional<double> last(const std::string& name) const;
};

struct RouterHistory {
  int64_t experts = 0, top_k = 0, window = 0;
  std::vector<int64_t> steps = {};  // logged, rising
  std::vector<LayerHistory> layers = {};
};

// Share of the assignments that went to other experts than before: half the sum over experts of
// |load - load before|.
double load_turnover(const std::vector<uint32_t>& before, const std::vector<uint32_t>& now);
// What two independent draws of `assignments` from one uniform distribution differ by: sqrt((E - 1)
// / (pi A)).
double turnover_floor(int64_t experts, double assignments);

// UserError when a load vector does not unpack. window: telemetry.window.
RouterHistory read_router_history(const TelemetryReader& telemetry, int64_t top_k, int64_t window);

}  // namespace assay
