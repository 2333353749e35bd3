// Shapes of the cases of ops that add the rows of a token's experts.
#pragma once

#include <cstdint>
#include <string>

#include "tests/ops/routing.h"

namespace assay {

struct RoutedShape {
  int64_t tokens, width, experts, k;
  Load load;
  // What the op adds to its sum: nothing, another buffer, or the one that it writes.
  enum class Add { kNone, kOther, kSelf } add;
};

inline std::string shape_name(const RoutedShape& s) {
  return " N=" + std::to_string(s.tokens) + " C=" + std::to_string(s.width) +
         " E=" + std::to_string(s.experts) + " K=" + std::to_string(s.k) + " " + load_name(s.load) +
         (s.add == RoutedShape::Add::kNone    ? ""
          : s.add == RoutedShape::Add::kOther ? " add"
                                              : " add-self");
}

}  // namespace assay
