// What a launch of a training run settles before the run exists: its session's configuration, by
// what the user gives and, where the run in the folder goes on, by what that run has.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "session/run_data.h"
#include "session/session.h"

namespace assay {

struct TrainingRunOptions {
  std::string folder;
  enum class Start { kContinue, kFresh } start = Start::kContinue;  // kFresh deletes what is there
  std::vector<std::string> command = {};                            // recorded in meta.json
  std::string tune = {};  // tune file for a GPU's dense products; "": none, or the run's
  bool quiet = false;     // stderr gets warnings only; log.txt has every line
};

// That of the run in the folder, as its last launch left it; nullopt if the run begins.
std::optional<Config> configuration_before(const TrainingRunOptions& options);

// Spells paths as the run in the folder does, if it goes on; and if data.tokenizer is that of its
// last launch, names it where an imported run has it now.
void follow_tokenizer(const TrainingRunOptions& options, Config& config);

// Takes from the run in the folder, if it goes on, what the configuration leaves open:
// parallel.parts where it is 0 (one for each rank in a new run), and precision.products where it
// was `auto`. Follows its tokenizer too. UserError where so many ranks cannot share the parts.
void resolve_by_run(Session& session, const TrainingRunOptions& options, int ranks);

// The algorithms of a GPU's dense products: those of options.tune, or of the run that goes on.
// Before memory is planned. UserError as use_products_for_training().
void take_products(Session& session, const TrainingRunOptions& options);

// All of these, and the contract in steps, except for one in seconds whose step length is not known
// yet. UserError also if the folder has another run, as far as its configuration shows it.
Session resolved_session(Session session, const TrainingRunOptions& options);

// Resolves that contract in seconds. A run keeps the step length measured when it began, so that it
// ends at the same step however often it is stopped; one that begins trains a few steps to measure
// it. Collective with ranks.
void resolve_seconds(Session& session, const RunData& data, const TrainingRunOptions& options);

}  // namespace assay
