// Reading a configuration: YAML files with `include:`, and --set. Everything a user can get wrong
// (unknown, misplaced or duplicate key, wrong type, value out of range, missing or cyclic include)
// is a UserError with file, line and the nearest known key.
//
// Text that is not UTF-8 is refused in files and --set of load_config(), not in what a run
// recorded.
//
// `include: other.yaml` (or a list) is read first; the including file overrides it, and --set
// overrides both. Naming an optional section (model.moe, data.synth) makes it present; `moe: null`
// removes it. The configuration that a run recorded is read as parse_run_config_text() does,
// included or not.
#pragma once

#include <string>
#include <vector>

#include "engine/config/config.h"

namespace assay {

// Paths become absolute: those in a file are relative to its folder, those in --set to the working
// folder, those from ~/ to the home folder. The result is validated (engine/config/check.h).
Config load_config(const std::string& path, const std::vector<std::string>& sets = {});

// UserError for a --set that is not UTF-8, as load_config(): for others who write a config.yaml.
void require_utf8_sets(const std::vector<std::string>& sets);

// Whether such an argument gives the field: "run.steps=7" and "run={steps: 7}" both give
// "run.steps". UserError if its value is not YAML.
bool gives_field(const std::string& set, const std::string& field);

// Whether a file names the field itself: not one that it includes, nor a run, whose recorded
// configuration names all. The file as load_config() finds it; a pipe, which was read, is taken to
// name all.
bool names_field(const std::string& path, const std::string& field);

// A --set from another source: `where` names it in messages, paths are relative to `folder`.
struct ConfigChange {
  std::string set;  // section.field=value
  std::string where;
  std::string folder;
};
Config load_changed_config(const std::string& path, const std::vector<ConfigChange>& changes);

// As load_config, from memory. `name` stands for the file in messages; includes and paths are
// relative to `folder`.
Config parse_config_text(const std::string& text, const std::string& name,
                         const std::string& folder, const std::vector<std::string>& sets = {});
// As parse_config_text, of a configuration that a run recorded: a field that it does not name has
// the value that it had before there was such a field.
Config parse_run_config_text(const std::string& text, const std::string& name,
                             const std::string& folder);

// Whether the text is to the letter what this version records of the configuration that it gives,
// with whole paths; that of data.cache may be its default.
bool is_recorded_text(const std::string& text);

}  // namespace assay
