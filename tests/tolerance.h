// The only file with tolerances. A rule is a function with its reason; a test adds the rules that apply.
#pragma once

#include <cmath>
#include <cstdint>

#include "base/bf16.h"

namespace assay::tol {

template <typename T>
constexpr double unit_roundoff();  // half an ulp, relative
template <>
constexpr double unit_roundoff<float>() {
  return 0x1p-24;
}
template <>
constexpr double unit_roundoff<bf16>() {
  return 0x1p-8;
}

// Copies, permutations, integers, recomputation.
inline double exact() {
  return 0;
}

// One rounding to T of a result of this magnitude, with a factor 1.01 for the float error beneath it.
template <typename T>
double rounding(double magnitude) {
  return 1.01 * unit_roundoff<T>() * std::abs(magnitude) + (sizeof(T) == 2 ? 0x1p-134 : 0x1p-149);
}

// A float sum of n products whose absolute values sum to abs_sum, in any order: |error| <= n u abs_sum in the
// worst case, about sqrt(n) u abs_sum as rounding errors are independent. 4 sqrt(n) + 8 leaves room for both
// products and short chains.
inline double sum(double n, double abs_sum) {
  return (4 * std::sqrt(n) + 8) * 0x1p-24 * std::abs(abs_sum);
}

// A sum of n terms in double, worst case: for exact arithmetic done in double.
inline double sum_in_double(double n, double abs_sum) {
  return n * 0x1p-52 * std::abs(abs_sum);
}

// A sum of n products in which one factor was rounded to T first (probabilities before their product with v): the
// roundings are independent, each below u, so the error is about u times the root of the sum of squares; 4 times that
// is far in the tail.
template <typename T>
double rounded_factors(double root_of_squares) {
  return 4 * unit_roundoff<T>() * root_of_squares;
}

// Elementary functions in float (exp, log, rsqrt, division) applied `count` times to a value of this size.
inline double elementary(double count, double magnitude) {
  return 4 * count * 0x1p-24 * std::abs(magnitude);
}

}  // namespace assay::tol
