// Integer quotients that round up, for a >= 0 and b > 0; a + b must not overflow. The result has
// the type of a + b, so int stays int. nvcc calls them in kernels.
#pragma once

#include <concepts>

namespace assay {

// a / b, rounded up.
template <std::integral A, std::integral B>
constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// The smallest multiple of b that is at least a.
template <std::integral A, std::integral B>
constexpr auto round_up(A a, B b) {
  return ceil_div(a, b) * b;
}

}  // namespace assay
