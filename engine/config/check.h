// What several fields of a configuration must satisfy together. Each violation is a UserError with
// the values.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

// Shape, optimizer, batch; and the schedule against run.steps unless a contract fixes the steps
// later.
void validate(const Config& config);

// warmup + warmdown <= run.steps: for when a contract has set run.steps.
void validate_schedule(const Config& config);

// Training needs data: files or synth, not both; of a mixture a weight for each entry.
void validate_data(const Config& config);

// The files behind paths and patterns (*, ?, [..]), in lexicographic order, each once. UserError
// when one of them matches nothing or is a folder. `field` is the name for messages, e.g.
// "data.train".
std::vector<std::string> expand_files(const std::vector<std::string>& patterns,
                                      const std::string& field);

}  // namespace assay
