// Summary of a run: loss, capability and health, and when it reached its target loss. One of the
// three alone says little: a model may reach a loss with routers that send everything to a few
// experts.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"

namespace assay {

// The first evaluation at or below run.target_loss, and what had been spent by then.
struct TargetReached {
  double loss_nats = 0;
  int64_t step = 0;
  int64_t tokens = 0;
  std::optional<double> seconds;  // of training
  double flops = 0;
};
// nullopt without a target or if it is not reached.
std::optional<TargetReached> target_reached(const RunRecord& run);

// True if the run reached its target loss with collapsed routers (RouterHealth::collapsed).
bool is_pathological_win(const RunRecord& run);

// Lines for the terminal at the end of a run.
std::vector<std::string> summary_lines(const RunRecord& run);
// loss_nats, capability (null: not evaluated), health, pathological_win, target, contract, train_s.
nlohmann::ordered_json summary_json(const RunRecord& run);

}  // namespace assay
