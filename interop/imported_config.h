// The configuration of a run made from a model in the Hugging Face format.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"
#include "interop/import.h"
#include "interop/model_json.h"

namespace assay {

// The user's file and --set, with the model of config.json; of the model they give what only
// training reads: init and balancing. Adds a note on what is not taken from the file. UserError if
// they change the model, or if a sequence is longer than the model's sliding window.
Config imported_config(const ImportPlan& plan, const ImportedModel& imported,
                       std::vector<std::string>& notes);

}  // namespace assay
