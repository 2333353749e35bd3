// The routers of several runs, one line each, over the last W logged steps of every run: how a
// number of experts, a rule or a seed ends. `assay router` of a matrix's folder shows it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"

namespace assay {

struct RouterLine {
  std::string run;
  int64_t experts = 0, top_k = 0, last_step = 0, planned_steps = 0;
  std::string end;  // "" if the run is training or was killed
  RouterState state = RouterState::kHealthy;
  std::optional<double> dead_share = {};       // absent before W logged steps
  std::optional<double> effective_share = {};  // exp(H) / E, the smallest of the layers
  double max_load_norm_worst = 0;              // K max_load
  int64_t worst_layer = 0;                     // block index, by max_load_norm
};

struct RouterOverview {
  std::string of;  // the folder
  std::vector<RouterLine> lines = {};
  std::vector<std::string> left_out = {};  // "runs/m/a: the model is dense"
};

// Reads the runs. Those that are dense, have no logged step of their routers or cannot be read are
// left out, with the reason. UserError if that leaves none.
RouterOverview router_overview(const std::string& of, const std::vector<std::string>& runs);

std::string overview_text(const RouterOverview& overview);
nlohmann::ordered_json overview_json(const RouterOverview& overview);  // an array, one per line

}  // namespace assay
