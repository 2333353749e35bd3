// The number of the planted bug that is on, from the environment; 0: none. Only the copy of the
// tree that tools/mutate.sh builds includes this (docs/reliability.md).
#pragma once

#include <cstdlib>
#include <type_traits>

inline int assay_mutant_number() {
  static const int number = [] {
    const char* const text = std::getenv("ASSAY_MUTANT");
    return text == nullptr ? 0 : std::atoi(text);
  }();
  return number;
}

// In constant expressions no bug is on: so not in `const int n = MUTANT ? 1 : 2;` either.
constexpr bool assay_mutant(int number) {
  return std::is_constant_evaluated() ? false : assay_mutant_number() == number;
}
