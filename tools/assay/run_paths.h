// The paths of runs that a command is given.
#pragma once

#include <string>
#include <vector>

namespace assay {

void note_left_out(const std::string& path, const std::string& why);  // on stderr

// Without configs/ and logs/ of a matrix, which a shell's `runs/cpu/*/` names beside its runs; each
// is noted. UserError if nothing is left of some.
std::vector<std::string> run_paths(const std::vector<std::string>& given);

}  // namespace assay
