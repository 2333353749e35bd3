#include "models/audit/checkpoint_disk.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/check.h"
#include "base/memory_units.h"
#include "models/audit/horizon.h"
#include "models/decoder/training_memory.h"

namespace assay {
namespace {

// Steps whose checkpoints are never deleted. With a contract that measures the machine first only
// the landings are known.
int64_t milestones(const Config& config) {
  if (!horizon_is_known(config)) {
    return int64_t(landing_fractions(config.contract).size());
  }
  std::set<int64_t> apart;  // landings that are no milestone for another reason
  const int64_t every = config.run.milestone_every, steps = planned_steps(config);
  for (const Landing& landing : landings(config)) {
    if (every == 0 || landing.step % every != 0) apart.insert(landing.step);
  }
  return int64_t(apart.size()) + (every == 0 ? 0 : steps / every);
}

}  // namespace

int64_t checkpoint_bytes(const Config& config, Recipe recipe) {
  const TrainingMemory memory(config, recipe);
  int64_t bytes = 0;
  for (const Slice& slice : memory.model->slices()) bytes += slice.bytes();
  for (const Slice& slice : memory.optimizer->slices()) bytes += slice.bytes();
  return bytes;
}

int64_t CheckpointDisk::bytes_of(int64_t checkpoints) const {
  int64_t bytes = 0;
  return __builtin_mul_overflow(each, checkpoints, &bytes) ? INT64_MAX : bytes;
}

CheckpointDisk checkpoint_disk(const Config& config, Recipe recipe) {
  return checkpoint_disk(config, checkpoint_bytes(config, recipe));
}

CheckpointDisk checkpoint_disk(const Config& config, int64_t each) {
  const RunConfig& run = config.run;
  const bool by_time = run.checkpoint_every > 0 && run.checkpoint_minutes > 0;
  CheckpointDisk disk{.each = each};
  disk.kept = milestones(config) + run.keep_checkpoints + (run.keep_best ? 1 : 0);
  disk.most = disk.kept + 1 + (by_time ? 1 : 0);
  return disk;
}

std::string checkpoint_disk_text(const CheckpointDisk& disk) {
  return strprintf("%.1f MiB each, at most %ld at a time: %.1f MiB", in_mib(disk.each),
                   long(disk.most), in_mib(disk.bytes_of(disk.most)));
}

std::optional<int64_t> free_disk_bytes(const std::string& folder) {
  namespace fs = std::filesystem;
  std::error_code failed;
  fs::path there = fs::absolute(folder, failed);
  while (!failed && !fs::exists(there, failed) && there.has_relative_path()) {
    there = there.parent_path();
    failed.clear();
  }
  const fs::space_info space = fs::space(there, failed);
  if (failed) return std::nullopt;
  return int64_t(std::min<uintmax_t>(space.available, INT64_MAX));
}

}  // namespace assay
