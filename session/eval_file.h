// RUN/evals/step-N.json: what `assay eval` or the run itself measured of a step.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace assay {

// The folder in RUN.
constexpr const char* kEvaluations = "evals";

// The path RUN/evals/step-N<suffix>.json; creates the folder. UserError if that is a link to what
// is not the run's (engine/run/own_folder.h). A suffix names a file that belongs to
// the evaluation but is not read as one.
std::string evaluation_file(const std::string& run, int64_t step, const std::string& suffix = "");

struct RecordedEvaluation {
  std::string path;
  // The file has CORE of tasks or rows that the new one lacks, or of longer prompts: it stays.
  bool kept_core = false;
  bool changed = true;  // false: that was all that the new one had
};

// Merges `result` into the file; the step's earlier measurements under other keys are kept. Its
// commit, device, recipe and phase are put into its "core" too: beside it they are those of the
// losses, or of CORE in a file without losses. Files of earlier versions have them only beside it,
// and no phase. Evaluations that end together do so one after the other.
// UserError when the file cannot be read or written, or the existing one is damaged.
RecordedEvaluation record_evaluation(const std::string& run, int64_t step,
                                     nlohmann::ordered_json result);

}  // namespace assay
