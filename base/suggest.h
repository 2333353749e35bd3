// The known name nearest to a mistyped one, for hints.
#pragma once

#include <string>
#include <vector>

namespace assay {

// Letters to insert, delete, replace or swap with their neighbour to get from a to b.
int edit_distance(const std::string& a, const std::string& b);

// The nearest of `known` (the first of equals), or "" when none is near enough to be what was
// meant.
std::string nearest_name(const std::string& word, const std::vector<std::string>& known);

}  // namespace assay
