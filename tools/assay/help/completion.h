// Completion scripts of the shells, made from the description of the command line.
#pragma once

#include <string>

#include "tools/assay/help/description.h"

namespace assay {

// Scripts for bash (4.2 or later, without the package bash-completion) and for zsh. They complete
// commands, options, choices, files, folders of runs and, after --set, fields of a configuration
// with their choices.
std::string bash_completion(const CommandDescription& program);
std::string zsh_completion(const CommandDescription& program);

}  // namespace assay
