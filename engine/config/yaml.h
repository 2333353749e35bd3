// Reading a configuration: YAML files with `include:`, and --set. Everything a user can get wrong
// (unknown, misplaced or duplicate key, wrong type, value out of range, include that is missing or
// goes round in a circle) is a UserError naming file, line and the nearest known key.
//
// `include: other.yaml` (or a list) is read first, then the including file on top of it; --set
// comes last. A section that may be absent (model.moe, data.synth) appears when it is mentioned,
// and `moe: null` takes it away.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

// Paths in a file become absolute, taken from the folder of that file; paths in --set from the
// working folder. The result is validated (engine/config/check.h).
Config load_config(const std::string& path, const std::vector<std::string>& sets = {});

// A --set that was written somewhere else: `where` stands in messages, paths start from `folder`.
struct ConfigChange {
  std::string set;  // section.field=value
  std::string where;
  std::string folder;
};
Config load_changed_config(const std::string& path, const std::vector<ConfigChange>& changes);

// The same from memory; `name` stands in messages, includes and paths are taken from `folder`.
Config parse_config_text(const std::string& text, const std::string& name,
                         const std::string& folder, const std::vector<std::string>& sets = {});

}  // namespace assay
