// The only file with tolerances. A rule is a function with its reason; a test adds the rules that
// apply.
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

// One rounding to T of a result of this magnitude, with a factor 1.01 for the float error beneath
// it.
template <typename T>
double rounding(double magnitude) {
  return 1.01 * unit_roundoff<T>() * std::abs(magnitude) + (sizeof(T) == 2 ? 0x1p-134 : 0x1p-149);
}

// A float sum of n products whose absolute values sum to abs_sum, in any order: |error| <= n u
// abs_sum in the worst case, about sqrt(n) u abs_sum as rounding errors are independent. 4 sqrt(n)
// + 8 leaves room for both products and short chains.
inline double sum(double n, double abs_sum) {
  return (4 * std::sqrt(n) + 8) * 0x1p-24 * std::abs(abs_sum);
}

// What the tensor cores of a GPU lose of a sum of products of 8 or 4 bits. As published for Hopper,
// in a step of 32 of them these and the sum so far are shifted to the largest and cut off below
// 2^-13 of it, and their sum is cut to 13 bits of fraction: 34 cuts, each of up to 2^-13 of the
// largest. The magnitudes of a step add up to some times its largest, cuts are half of their bound
// in the mean and partly cancel where signs differ: 12 of the 34, 1.5 2^-10 of all magnitudes. A
// model of such sums, on the codes that cases have, uses at most 3/4 of that, whether the sums of
// 128 go to float or, of products of either sign, all stay: tests/ops/test_short_accumulators.cpp.
// 2^-9 would hide sums that should go to float and do not (`promotion` of grouped_scaled).
inline double short_accumulators(double abs_sum) {
  return 1.5 * 0x1p-10 * std::abs(abs_sum);
}

// A number x rounded to the nearest of E4M3, of a block whose scale makes `most` the largest of the
// format (448), or at worst twice that for scales of powers of two: half a step of three bits, or
// of the numbers below the normal ones.
inline double code_e4m3(double x, double most) {
  return 1.01 * (0x1p-4 * std::abs(x) + 2 * 0x1p-10 * most / 448);
}

// A sum of n terms in double, worst case: for exact arithmetic done in double.
inline double sum_in_double(double n, double abs_sum) {
  return n * 0x1p-52 * std::abs(abs_sum);
}

// A sum of n products in which one factor was rounded to T first (probabilities before their
// product with v): the roundings are independent, each below u, so the error is about u times the
// root of the sum of squares; 4 times that is far in the tail.
template <typename T>
double rounded_factors(double root_of_squares) {
  return 4 * unit_roundoff<T>() * root_of_squares;
}

// Probabilities of logits that were rounded to T: a logit z moves by at most u |z|, the logsumexp
// by at most u times the largest |z|. shift = u (|z| + largest |z|) multiplies p by at most
// e^shift; p stays in [0, 1].
template <typename T>
double rounded_logits(double p, double z, double largest) {
  return std::fmin(1.0, p * std::expm1(unit_roundoff<T>() * (std::abs(z) + largest)));
}

// Elementary functions in float (exp, log, rsqrt, division) applied `count` times to a value of
// this size.
inline double elementary(double count, double magnitude) {
  return 4 * count * 0x1p-24 * std::abs(magnitude);
}

// The same in double, for chains of roots, quotients and quantiles.
inline double elementary_in_double(double count, double magnitude) {
  return 4 * count * 0x1p-53 * std::abs(magnitude);
}

// A number of a whole step (loss, an element of a gradient, of tensors whose largest element is
// given), computed by two backends. float: some hundred roundings lie between a parameter and the
// loss and back; they are independent, so sqrt(100) u, times 4. bf16: some ten of them are to bf16,
// of which most are of elements smaller than the largest: 6 u.
template <typename T>
double two_backends(double largest) {
  return (sizeof(T) == 2 ? 6.0 : 40.0) * unit_roundoff<T>() * std::abs(largest);
}

// The root of the summed squares of a gradient in a quantised recipe. An operand on the edge
// between two numbers of its format falls to either side, by up to half of itself in fp4; a
// tensor's amax that differs in its last bit moves all of them. 13% were seen. The parts are equal
// to the bit (fake_quantise, product scales): what is to be found here is a part that is missing,
// which is the whole.
inline double two_quantised_backends(double root_of_squares) {
  return 0.25 * root_of_squares;
}

// Logits of another program from the same fp32 weights: the promise of docs/interop.md. Some
// hundred roundings lie in between, each relative to the largest of the tensors it happens in.
inline double other_program(double largest) {
  return 1e-4 * std::abs(largest);
}

// A central difference of a loss that is computed in T, over a way on which it moves by a fiftieth:
// what rounding leaves of the difference, and the third derivative, each as much as two backends
// may differ.
template <typename T>
double central_difference(double difference) {
  return 2 * two_backends<T>(difference);
}

// A number computed from others that were printed with so many decimals, which enter it with this
// factor.
inline double printed(int decimals, double factor = 1) {
  return 0.5 * factor * std::pow(10.0, -decimals);
}

// A standard deviation of n samples, relative: 4.5 standard errors of 1 / sqrt(2 (n - 1)).
inline double sampled_deviation(double n) {
  return 4.5 / std::sqrt(2 * (n - 1));
}

// Pearson's chi-square of counts with so many degrees of freedom (Wilson and Hilferty's cube): 5
// standard deviations above. Right draws pass it but once in some 10^6.
inline double chi_square(double freedom) {
  const double variance = 2 / (9 * freedom);
  return freedom * std::pow(1 - variance + 5 * std::sqrt(variance), 3);
}

}  // namespace assay::tol
