// Summary of a run: loss, capability and health, and when it reached its target loss. One of the
// three alone says little: a model may reach a loss with routers that send everything to a few
// experts.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "lab/runs/run_record.h"
#include "lab/runs/time_to_target.h"

namespace assay {

// What the run had spent when it reached run.target_loss. nullopt without a target, or if it did
// not.
std::optional<TimeToTarget> target_reached(const RunRecord& run);

// True if the run reached its target loss with collapsed routers (RouterHealth::collapsed).
bool is_pathological_win(const RunRecord& run);

// Lines for the terminal at the end of a run.
std::vector<std::string> summary_lines(const RunRecord& run);
// loss_nats (null: NaN or infinite, or none) and the step of its validation, loss_step (null: there
// was none); capability (null: not evaluated), health, pathological_win, target, contract, train_s
// and the step up to which it counts, train_s_step.
nlohmann::ordered_json summary_json(const RunRecord& run);

}  // namespace assay
