// What a checkpoint keeps of a run (engine/run/run.h), beside the tensors of its optimizer. The way
// back is resume_or_initialise() of run.h.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/run/checkpoint.h"
#include "engine/run/run.h"

namespace assay {

struct RunProgress {
  int64_t steps_done = 0;
  std::span<const int32_t> last_probe = {};  // RouterTelemetry::last_probe()
  double train_s = 0;                        // NaN: not known, and not saved
  double schedule_share = 0;                 // of the last step
};
TrainingState state_to_save(const RunParts& parts, const RunProgress& progress);

// What this rank saves of the model: the masters that it owns; buffers are the first rank's.
std::vector<Slice> model_slices_to_save(RunParts& parts);

}  // namespace assay
