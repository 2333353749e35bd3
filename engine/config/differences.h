// The fields in which two configurations differ.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

struct FieldDifference {
  std::string field;   // "optimizer.lr"
  std::string before;  // as YAML has them; "absent" and "present" of a section
  std::string now;
  std::string why = {};  // what is wrong with it, if the values do not say it

  std::string text() const;  // "optimizer.lr: 0.001 -> 0.002", and "(WHY)" after it
  bool operator==(const FieldDifference&) const = default;
};

// Differences that forbid resuming a run with configuration `before` after `steps_done` steps with
// the configuration `now`; empty if it may resume. Fields may differ as their OnResume says;
// run.steps, at least steps_done, and the schedule may differ if the learning rates of the steps
// done stay the same; of paths only the file names must match; and a value may be written in
// another way (engine/config/spelling.h).
// run.steps of both must already be set from the contract.
std::vector<FieldDifference> result_changing_differences(const Config& before, const Config& now,
                                                         int64_t steps_done);

// All fields in which they differ, but for another way of writing a value and files of the same
// name.
std::vector<FieldDifference> changed_settings(const Config& before, const Config& now);

// Fields in which ranks of one run differ and may not: all but run.threads, data.cache
// and the folders of files.
std::vector<FieldDifference> differences_of_ranks(const Config& first, const Config& other);

}  // namespace assay
