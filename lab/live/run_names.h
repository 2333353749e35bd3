// Paths of runs, cut to the width of a column.
#pragma once

#include <string>
#include <vector>

namespace assay {

// As many as the paths, none longer than `columns` (at least 3). If all paths fit, as they are.
// Else without the beginning that all share, which "<" stands for, up to the last folder or, if
// that is not enough, the last word. A name that is still too long is cut in its middle ("~"), in
// all such names at the place that leaves most of them different, near the middle.
std::vector<std::string> short_run_names(const std::vector<std::string>& paths, int columns);

}  // namespace assay
