#include "base/suggest.h"

#include <algorithm>

namespace assay {

int edit_distance(const std::string& a, const std::string& b) {
  const size_t rows = a.size() + 1, columns = b.size() + 1;
  std::vector<int> distance(rows * columns);
  const auto at = [&](size_t i, size_t j) -> int& { return distance[i * columns + j]; };
  for (size_t i = 0; i < rows; ++i) at(i, 0) = static_cast<int>(i);
  for (size_t j = 0; j < columns; ++j) at(0, j) = static_cast<int>(j);
  for (size_t i = 1; i < rows; ++i) {
    for (size_t j = 1; j < columns; ++j) {
      const int replaced = at(i - 1, j - 1) + (a[i - 1] == b[j - 1] ? 0 : 1);
      at(i, j) = std::min({at(i - 1, j) + 1, at(i, j - 1) + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        at(i, j) = std::min(at(i, j), at(i - 2, j - 2) + 1);
      }
    }
  }
  return at(rows - 1, columns - 1);
}

std::string nearest_name(const std::string& word, const std::vector<std::string>& known) {
  // Up to a third of the letters, at least two, may be wrong; beyond that a guess is noise.
  int best = std::max<int>(2, static_cast<int>(word.size()) / 3) + 1;
  std::string name;
  for (const std::string& candidate : known) {
    const int distance = edit_distance(word, candidate);
    if (distance < best && distance < static_cast<int>(candidate.size())) {
      best = distance;
      name = candidate;
    }
  }
  return name;
}

}  // namespace assay
