// Runs that `assay dissect used --export` wrote. They have a checkpoint and no telemetry.
#pragma once

#include <optional>
#include <string>

namespace assay {

// The run that the export in the folder `run` was made from, as the user named it then; "" where
// its meta.json does not say so plainly. nullopt for every other run, also for an export that was
// trained since.
std::optional<std::string> exported_from(const std::string& run);

}  // namespace assay
