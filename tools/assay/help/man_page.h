// The man page assay(1), made from the description of the command line.
#pragma once

#include <string>

#include "tools/assay/help/description.h"

namespace assay {

std::string man_page(const CommandDescription& program, const std::string& version);

}  // namespace assay
