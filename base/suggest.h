// The known name nearest to a mistyped one, for hints.
#pragma once

#include <string>
#include <vector>

namespace assay {

// Number of insertions, deletions, replacements and swaps of neighbours that turn a into b.
int edit_distance(const std::string& a, const std::string& b);

// The name in `known` nearest to `word` (the first on a tie), or "" if none is near enough to be a
// plausible correction.
std::string nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace assay
