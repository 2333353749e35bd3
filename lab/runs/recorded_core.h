// The last CORE of a run, read once with the run: its score from telemetry.db, and its questions
// and answers from evals/step-N.json (session/eval_file.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "engine/telemetry/reader.h"

namespace assay {

struct RecordedTask {
  std::string label;
  double baseline_percent = 0;
  std::optional<int64_t> rows, shots;
  // "" and none: an earlier version wrote it. The answers are as those of CoreTaskResult.
  std::string rows_sha256;
  std::optional<std::string> answers;
};

// What evals/step-N.json has of CORE. A later evaluation of the step may have written it.
struct CoreFile {
  std::string path;
  bool whole = false;                 // of all tasks of CORE and all rows
  std::optional<double> score;        // of its answers, to all tasks of CORE or to those there are
  std::optional<int64_t> max_tokens;  // of a prompt
  std::vector<RecordedTask> tasks;
  std::optional<UserError> damage;  // why nothing of it could be read
};

struct RecordedCore {
  // "core", or, if tasks or rows were left out, a partial score under a name that says so.
  std::string name;
  double value = 0, standard_error = 0;
  int64_t step = 0;
  std::optional<CoreFile> file;  // none: it is not there

  // Whether the file is of a later evaluation, with another score.
  bool is_replaced() const;
};

// nullopt if the run has no score of eval.core. run: its directory.
std::optional<RecordedCore> read_recorded_core(const std::string& run,
                                               const TelemetryReader& telemetry);

}  // namespace assay
