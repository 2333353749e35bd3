// Names of runs that tell them apart: the folder's, with those above it where two have the same.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace assay {

// The last part of each path, with as many folders before it as it takes to make names unique. The
// paths are absolute and all different.
std::vector<std::string> distinct_labels(const std::vector<std::filesystem::path>& paths);

// The same of the folders of runs. UserError if one is not a run, or is given twice.
std::vector<std::string> run_labels(const std::vector<std::string>& runs);

}  // namespace assay
