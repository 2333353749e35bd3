// A configuration as text: the resolved YAML of a run, --help-config, differences from the
// defaults, and differences that forbid resuming a run.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

// Every field; reads back equal.
std::string to_yaml(const Config& config);

// Every field with type, default, documentation and check.
std::string help_config();

// One "optimizer.lr = 0.002 (default 0.001)" per field, and "model.moe = present (default absent)"
// for a section none of whose fields differs.
std::vector<std::string> differences_from_default(const Config& config);

// Differences that forbid resuming a run with configuration `before` after `steps_done` steps with
// the configuration `now`: one "run.seed: 1 -> 2" each; empty if it may resume. Fields may differ
// as their OnResume says; run.steps, at least steps_done, and the schedule may differ if the
// learning rates of the steps done stay the same; of paths only the file names must match; and a
// value may be written in another way (engine/config/spelling.h).
// run.steps of both must already be set from the contract.
std::vector<std::string> result_changing_differences(const Config& before, const Config& now,
                                                     int64_t steps_done);

// Fields in which ranks of one run differ and may not, in the same form: all but run.threads,
// data.cache and the folders of files.
std::vector<std::string> differences_of_ranks(const Config& first, const Config& other);

// SHA-256 of each section's YAML, by section name.
std::map<std::string, std::string> section_hashes(const Config& config);

}  // namespace assay
