// What a run's folder has of single steps beside its telemetry: texts in samples.jsonl, and the
// files of evals/. evals/given-up has those of steps that the run gave up; nothing reads it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

// The lines of samples.jsonl of steps up to this one. Lines that are none of a step are left out.
std::string sample_lines_up_to(const std::string& lines, int64_t step);

// The step of a file of evals/, by its name: step-N.json, or one that belongs to it as
// step-N.core-1-of-2.json does; -1 of any other.
int64_t evaluated_step(const std::string& name);

// The names of these files that a run has, by step. ReadFailed if the folder cannot be read.
std::vector<std::string> evaluation_files(const std::string& run);

// In RUN/evals.
inline constexpr const char* kGivenUp = "given-up";

struct GivenUp {
  std::vector<std::string> evaluations = {};  // their names: they are in evals/given-up now
  int64_t sample_lines = 0;                   // removed from samples.jsonl
  std::string problem = {};                   // the first error; "" if nothing stays
};

// Takes away what is there of later steps: a run that goes on from this step makes them again, and
// no longer has the weights that were measured. The files of evals/ are moved, since nothing makes
// again what `assay eval` measured; each replaces an older one of its name. What cannot be taken
// away stays, and the rest goes.
GivenUp give_up_measurements_after(const std::string& run, int64_t step);

}  // namespace assay
