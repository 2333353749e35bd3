// Paths in and of configurations.
#pragma once

#include <string>
#include <vector>

namespace assay {

// The file of the configuration or matrix that a user calls `path`: the path itself, or where it
// does not exist and begins with models/presets, the preset that was installed with this program
// (bin/assay, share/assay/presets) or that is in its clone (build/assay).
std::string preset_or_path(const std::string& path);

// Several of them. models/presets/cpu/*.yaml is the presets that it matches: a shell leaves the
// pattern as it is where there is no such folder.
std::vector<std::string> presets_or_paths(const std::vector<std::string>& given);

// A hint or a help text as it reads for an installed program: a script or a document that was
// installed with it (bin/assay, share/assay/tools, share/doc/assay) by its path instead of tools/
// or docs/, and beside a script, instead of data-cache/, the folder that installed scripts and
// presets take. In a clone the text itself.
std::string as_installed(std::string text);

// A path of a configuration in `folder`: relative to that folder; ~/ is the home folder, HOME or,
// where that is not set, the one that the system keeps for the user.
std::string path_in(const std::string& folder, const std::string& path);

}  // namespace assay
