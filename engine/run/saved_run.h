// What a checkpoint keeps of a run (engine/run/run.h), beside the tensors of its optimizer, and the
// way back.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/run/checkpoint.h"
#include "engine/run/run.h"

namespace assay {

struct RunProgress {
  int64_t steps_done = 0;
  std::span<const int32_t> last_probe = {};  // RouterTelemetry::last_probe()
  double train_s = 0;                        // NaN: not known, and not saved
  Energy energy = {};                        // the same
  BestLoss best = {};                        // with run.keep_best; saved if it is finite
  double schedule_share = 0;                 // of the last step
};
TrainingState state_to_save(const RunParts& parts, const RunProgress& progress);

// Of other experts than the run's: its best loss is not theirs, nor are the choices of its probe.
void forget_measured(TrainingState& state);

// What this rank saves of the model: the masters that it owns; buffers are the first rank's.
std::vector<Slice> model_slices_to_save(RunParts& parts);

// Throws UserError naming the first file whose content, place or part differs from what the run
// has read so far. Files may move as long as their order stays. A state of an old version has no
// order: then the file of each name (without folder) must have the same content.
void require_same_data(const TrainingState& state, const std::vector<ReadFile>& now);

// Whether the state has the hashes of a tokenizer. One of an old version has no parts: then if it
// knows a file with the name of one of these, the tokenizer's `paths` now.
bool has_tokenizer(const TrainingState& state, const std::vector<std::string>& paths);

// The path of the first of `some` files, SHA-256 by path, that is none of those which the run has
// read; "" if there is none. A state without hashes allows all: of an import, or of an old version.
std::string first_unknown_file(const TrainingState& state,
                               const std::map<std::string, std::string>& some);
// Throws UserError naming that file.
void require_known_data(const TrainingState& state, const std::map<std::string, std::string>& some);

// Loads the checkpoint into model and optimizer and seeks the loader; without one it initialises
// the model from run.seed.
RunStart resume_or_initialise(RunParts& parts, const std::optional<std::string>& checkpoint);

}  // namespace assay
