// Command lines that the parser refuses: what is wrong with them, and what to give instead. CLI11's
// own messages suggest neither the nearest known name nor --help.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "base/check.h"

namespace assay {

// error: of app's parse(). arguments: the whole command line.
UserError wrong_command(CLI::App& app, const CLI::ParseError& error,
                        const std::vector<std::string>& arguments);

}  // namespace assay
