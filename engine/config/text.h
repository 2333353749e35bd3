// A configuration as text: the resolved YAML of a run, --help-config, and differences from the
// defaults.
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

// SHA-256 of each section's YAML, by section name.
std::map<std::string, std::string> section_hashes(const Config& config);

}  // namespace assay
