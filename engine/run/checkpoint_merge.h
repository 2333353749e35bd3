// A checkpoint of several ranks as the one that one rank would have saved.
#pragma once

#include <string>

namespace assay {

// Rewrites the folder in place as format 1, to the byte. At every moment its manifest describes
// files that are there, so an interruption leaves a valid checkpoint of either format. The
// checkpoint must be valid, and nobody else may change it. False if it is of format 1 already;
// files that an interrupted merge left are removed then too.
bool merge_checkpoint(const std::string& folder);

// SHA-256 of model.safetensors, which a checkpoint of format 2 gets by merging.
std::string merged_model_sha256(const std::string& folder);

}  // namespace assay
