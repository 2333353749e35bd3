// The routers of a run at every logged step, read from its telemetry: measures by layer, and values
// derived from the load vectors. Runs that are still training can be read too.
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
  int64_t last_used = 0;  // step; 0 = at no logged step
};

struct LayerHistory {
  int64_t layer = 0;                                           // block index
  std::map<std::string, std::vector<StepValue>> measure = {};  // columns of router_layer
  std::vector<uint64_t> window_counts = {};                    // (E), over the last W logged steps
  // By expert; absent before W logged steps.
  std::optional<std::vector<DeadExpert>> dead = {};
  int64_t never_used = 0;                // experts without an assignment at any logged step
  std::vector<StepValue> turnover = {};  // since the previous logged step

  std::optional<double> at(const std::string& name, int64_t step) const;
  std::optional<double> last(const std::string& name) const;
};

struct RouterHistory {
  int64_t experts = 0, top_k = 0, window = 0;
  std::vector<int64_t> steps = {};  // logged, ascending
  std::vector<LayerHistory> layers = {};

  // The first logged step whose last W steps are logged; absent before W logged steps.
  std::optional<int64_t> first_whole_window() const;
};

// Share of the assignments that went to other experts than before: half the sum over experts of
// |load - load before|.
double load_turnover(const std::vector<uint32_t>& before, const std::vector<uint32_t>& now);

// window: telemetry.window. up_to: without the steps after this one. UserError if a load vector
// does not unpack.
RouterHistory read_router_history(const TelemetryReader& telemetry, int64_t top_k, int64_t window,
                                  std::optional<int64_t> up_to = {});

}  // namespace assay
