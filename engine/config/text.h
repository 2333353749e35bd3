// A configuration written out: the resolved YAML of a run, --help-config, what differs from the
// default, and what a run that resumes may not change.
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

// "optimizer.lr = 0.002 (default 0.001)", one a line.
std::vector<std::string> differences_from_default(const Config& config);

// What forbids continuing a run: `before` is the configuration of the run, `now` the one asked for,
// and `steps_done` how far it came. One "run.seed: 1 -> 2" each; empty when the run may go on. A
// longer run.steps, log, checkpoint and evaluation intervals, threads and the contract may change;
// run.steps only while the learning rates of the steps already done stay what they were. Of paths
// the file name has to match. Give both configurations with run.steps already set from the
// contract.
std::vector<std::string> result_changing_differences(const Config& before, const Config& now,
                                                     int64_t steps_done);

// SHA-256 of each section's YAML, by section name.
std::map<std::string, std::string> section_hashes(const Config& config);

}  // namespace assay
