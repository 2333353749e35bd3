// The optimal assignment: one-to-one pairs of rows and columns with the largest sum of similarities
// (H. W. Kuhn, The Hungarian method for the assignment problem, 1955), by shortest augmenting paths
// (R. Jonker and A. Volgenant, A shortest augmenting path algorithm for dense and sparse linear
// assignment problems, Computing 38, 1987). O(n^2 m) for n = min(rows, columns), m = the other.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay {

// similarity: (rows, columns), row-major, finite. Returns the column of each row; with more rows
// than columns, -1 for a row without one. The same input gives the same assignment; of several
// optimal ones it is any.
std::vector<int32_t> best_assignment(int64_t rows, int64_t columns,
                                     std::span<const float> similarity);

}  // namespace assay
