// What the checkpoints of a run take on disk. Nearly all of a run is checkpoints.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/config/config.h"
#include "models/decoder/recipe.h"

namespace assay {

struct CheckpointDisk {
  int64_t each = 0;  // bytes of the tensors of one
  int64_t kept = 0;  // checkpoints that the run has when it ends, at most
  int64_t most = 0;  // that are there at a time before, at most

  // INT64_MAX where it is more.
  int64_t bytes_of(int64_t checkpoints) const;
};

// kept: run.keep_checkpoints (a run saves whenever it is stopped); milestones, one at each landing
// among them; the best. most: one more, which is written before an old one is removed, and where
// run.checkpoint_every is given, too, one by time. Without step 0 of an imported run.
CheckpointDisk checkpoint_disk(const Config& config, int64_t each);
// The same with `each` of the model and its optimizer.
CheckpointDisk checkpoint_disk(const Config& config, Recipe recipe);
// The tensors of one. Ranks write the same in pieces.
int64_t checkpoint_bytes(const Config& config, Recipe recipe);

// "206.5 MiB each, at most 3 at a time: 619.5 MiB"
std::string checkpoint_disk_text(const CheckpointDisk& disk);

// What this process may still write to the disk of a folder, which need not be there yet; nullopt
// where the system does not tell.
std::optional<int64_t> free_disk_bytes(const std::string& folder);

}  // namespace assay
