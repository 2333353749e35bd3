// Checks of several fields of a configuration together. Each violation is a UserError with the
// values.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

// Checks the whole configuration except data; the schedule against run.steps only if no contract
// sets the steps later.
void validate(const Config& config);

// Checks warmup + warmdown <= run.steps. Call again after a contract has set run.steps.
void validate_schedule(const Config& config);

// UserError for a path that is not UTF-8: it would read back from a run's config.yaml as another.
void require_utf8_paths(const Config& config);

// Checks what training needs: files or synth, not both; with a mixture one weight per entry.
void validate_data(const Config& config);
// Checks what an evaluation needs: validation files or synth.
void validate_evaluation_data(const Config& config);

// The files that paths and patterns (*, ?, [..]) match, in lexicographic order, each once. Throws
// UserError if one matches nothing or a folder. field: name for messages, e.g. "data.train".
std::vector<std::string> expand_files(const std::vector<std::string>& patterns,
                                      const std::string& field);

// UserError for the first field outside the range of its list, for a configuration made in code;
// load_config() has checked what it read.
void validate_ranges(const Config& config);
// UserError unless so many ranks can share a batch of config.parallel.parts parts, or, while these
// are 0, of one part each.
void require_ranks(const Config& config, int64_t ranks);
// UserError unless these ranks can share the experts as config.parallel.expert_ranks says.
void require_expert_ranks(const Config& config, int64_t ranks);

}  // namespace assay
