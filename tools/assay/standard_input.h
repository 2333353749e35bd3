// Standard input that another program or a file provides.
#pragma once

#include <string>

namespace assay {

// True for a pipe or a file; false for a terminal and for /dev/null.
bool standard_input_is_piped();

// Everything up to its end. `while_waiting`, if given, is printed once on stderr when nothing has
// come for two seconds. UserError when it cannot be read.
std::string read_standard_input(const std::string& while_waiting = "");

}  // namespace assay
