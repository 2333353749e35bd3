// Paths in and of configurations.
#pragma once

#include <string>

namespace assay {

// The file of the configuration or matrix that a user calls `path`: the path itself, or where it
// does not exist and begins with models/presets, the preset that was installed with this program
// (bin/assay, share/assay/presets) or that is in its clone (build/assay).
std::string preset_or_path(const std::string& path);

// A hint or a help text as it reads for an installed program: a script that was installed with it
// (bin/assay, share/assay/tools) by its path instead of tools/, and beside one, instead of
// data-cache/, the folder that installed scripts and presets take. In a clone the text itself.
std::string as_installed(std::string text);

// A path of a configuration in `folder`: relative to that folder; ~/ is the home folder.
std::string path_in(const std::string& folder, const std::string& path);

}  // namespace assay
