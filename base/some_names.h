// A list of names in a message, which stays a line however many there are.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"

namespace assay {

// "a, b, c and 3 more"
inline std::string some_names(const std::vector<std::string>& names) {
  constexpr size_t kMost = 3;
  std::string text;
  for (size_t i = 0; i < std::min(kMost, names.size()); ++i) {
    text += (i == 0 ? "" : ", ") + names[i];
  }
  if (names.size() > kMost) text += strprintf(" and %zu more", names.size() - kMost);
  return text;
}

}  // namespace assay
