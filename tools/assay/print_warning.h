// A warning with a hint, for every command.
#pragma once

#include <string>

namespace assay {

// "warning: ..." and "hint: ..." on standard error, after what standard output has so far.
void print_warning(const std::string& what, const std::string& hint);

}  // namespace assay
