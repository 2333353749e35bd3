// Small constants and integer arithmetic, for host code and kernels.
#pragma once

#include <concepts>

namespace assay {

// Between powers of e and powers of 2, which are one instruction: e^x = 2^(x log2 e), ln x = log2 x
// ln 2.
inline constexpr float kLog2E = 1.44269504f, kLn2 = 0.693147181f;

// a / b, rounded up, for a >= 0 and b > 0; a + b must not overflow. The result has the type of
// a + b, so int stays int.
template <std::integral A, std::integral B>
constexpr auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// The smallest multiple of b that is at least a; a and b as above.
template <std::integral A, std::integral B>
constexpr auto round_up(A a, B b) {
  return ceil_div(a, b) * b;
}

}  // namespace assay
