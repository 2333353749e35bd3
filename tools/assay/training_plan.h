// `--plan` of train and audit: planned memory, also before the data is there.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cuda/memory_plan.h"
#include "engine/config/config.h"
#include "session/resolve_run.h"
#include "session/training_warnings.h"

namespace assay {

enum class PlanOutput { kTable, kJson };

// Prints the memory of `assay train` and the shares of a mixture. Where the files of the data are
// missing, what follows from the model, and one line on stderr that says so. There are also the
// warnings of training_warnings(), which takes is_given. With ranks, which are not started: the
// memory of the fullest one, and of each section the smallest and the largest.
void print_training_plan(const Config& config, const std::string& device, int ranks,
                         const TrainingRunOptions& options, const IsGiven& is_given,
                         PlanOutput output);

// Bytes in all, per section (with padding between buffers) and per buffer.
nlohmann::ordered_json plan_json(const MemoryPlan& plan);

// As load_config; a matrix file is a UserError that names its command.
Config load_run_config(const std::string& path, const std::vector<std::string>& sets);

}  // namespace assay
