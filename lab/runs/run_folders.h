// Runs by the folders that a command was given.
#pragma once

#include <string>
#include <vector>

namespace assay {

// The runs among the paths, and those in a path that is no run itself, such as a matrix's folder;
// of each path by name. Also a run that lacks its telemetry or its configuration: whoever reads it
// says so. UserError if a path is no run and holds none.
std::vector<std::string> runs_in(const std::vector<std::string>& paths);

}  // namespace assay
