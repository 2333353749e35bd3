// How often a run saw its training data.
#pragma once

#include <optional>

#include "lab/runs/run_record.h"

namespace assay {

// Passes over the training data up to the last step, from what the run recorded. Of a run that did
// not record it (older versions) from the shards on the disk, if they are those that it read: the
// same files, and none that a manifest.json beside them has with another hash. nullopt if not, and
// of a mixture.
std::optional<double> passes_of(const RunRecord& run);

}  // namespace assay
