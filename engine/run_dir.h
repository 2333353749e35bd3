// A run directory: what INTERFACES calls runs/<name>/.
#pragma once

#include <filesystem>
#include <string>

namespace assay {

// The run named by a user. UserError when there is none: no such folder, a file, or a folder that no run wrote.
std::filesystem::path require_run(const std::string& run);

}  // namespace assay
