// All tolerances are defined here. Each rule is a function with its derivation; a test adds up the
// rules that apply.
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

// For copies, permutations, integers and recomputation.
inline double exact() {
  return 0;
}

// One rounding to T of a result of this magnitude. The factor 1.01 covers the preceding float
// error.
template <typename T>
double rounding(double magnitude) {
  return 1.01 * unit_roundoff<T>() * std::abs(magnitude) + (sizeof(T) == 2 ? 0x1p-134 : 0x1p-149);
}

// A float sum of n products whose absolute values sum to abs_sum, in any order: |error| <= n u
// abs_sum in the worst case, and about sqrt(n) u abs_sum because rounding errors are independent. 4
// sqrt(n) + 8 also covers the products' own roundings and short chains.
inline double sum(double n, double abs_sum) {
  return (4 * std::sqrt(n) + 8) * 0x1p-24 * std::abs(abs_sum);
}

// A number below the smallest normal one that was taken as zero, then multiplied by `factor`.
inline double underflow(double factor) {
  return 0x1p-126 * factor;
}

// One addition by the memory of a GPU (reduce_add), which takes both terms and their sum as zero if
// they are subnormal.
inline double addition_in_memory() {
  return 3 * 0x1p-126;
}

// Loss of a GPU's tensor cores in a sum of 8-bit or 4-bit products. As published for Hopper, a step
// takes 32 products; these and the running sum are shifted to the largest of them and truncated
// below 2^-13 of it, and their sum is truncated to 13 bits of fraction: 34 truncations, each of up
// to 2^-13 of the largest. The magnitudes of a step sum to several times its largest; truncations
// are half of their bound on average and partly cancel where signs differ. So the rule allows 12 of
// the 34: 1.5 2^-10 of all magnitudes. A model of such sums on the cases' codes uses at most 3/4 of
// that, whether sums of 128 are promoted to float or, with products of both signs, none are
// (tests/ops/test_short_accumulators.cpp). A rule of 2^-9 would hide a missing promotion to float
// (case `promotion` of grouped_scaled).
inline double short_accumulators(double abs_sum) {
  return 1.5 * 0x1p-10 * std::abs(abs_sum);
}

// x rounded to the nearest E4M3 number in a block whose largest magnitude is `most`. Its scale is
// most / 448, or at worst twice that if it is a power of two. The error is half a step of three
// mantissa bits, or half a step of the subnormal numbers.
inline double code_e4m3(double x, double most) {
  return 1.01 * (0x1p-4 * std::abs(x) + 2 * 0x1p-10 * most / 448);
}

// A sum of n terms in double, worst case; for references that are exact except for double.
inline double sum_in_double(double n, double abs_sum) {
  return n * 0x1p-52 * std::abs(abs_sum);
}

// A sum of products in which one factor was first rounded to T (e.g. probabilities before their
// product with v). The roundings are independent and each below u, so the error is about u times
// the root of the sum of squares; 4 times that is far in the tail.
template <typename T>
double rounded_factors(double root_of_squares) {
  return 4 * unit_roundoff<T>() * root_of_squares;
}

// A probability p computed from logits that were rounded to T: its logit z changes by at most u
// |z|, the logsumexp by at most u times the largest |z|. With shift = u (|z| + largest |z|), p
// changes by a factor of at most e^shift and stays in [0, 1].
template <typename T>
double rounded_logits(double p, double z, double largest) {
  return std::fmin(1.0, p * std::expm1(unit_roundoff<T>() * (std::abs(z) + largest)));
}

// `count` elementary functions in float (exp, log, rsqrt, division) on a value of this magnitude.
inline double elementary(double count, double magnitude) {
  return 4 * count * 0x1p-24 * std::abs(magnitude);
}

// The same in double, for chains of roots, quotients and quantiles.
inline double elementary_in_double(double count, double magnitude) {
  return 4 * count * 0x1p-53 * std::abs(magnitude);
}

// A result of a whole step (the loss, or an element of a gradient whose largest element is given)
// computed by two backends. float: about a hundred independent roundings on the way from a
// parameter to the loss and back give sqrt(100) u, times 4. bf16: about ten of them are to bf16,
// mostly of elements smaller than the largest: 6 u.
template <typename T>
double two_backends(double largest) {
  return (sizeof(T) == 2 ? 6.0 : 40.0) * unit_roundoff<T>() * std::abs(largest);
}

// The norm of the difference between two computations that round the same intermediate values,
// from sums of another order. A rounding that falls to the other side changes what all later ones
// round, so that in the end the two err independently. rounded_away: the norm of what the roundings
// change, a reference with them minus the one without. Two such errors differ by sqrt(2) of it; 2
// covers their spread.
inline double rounded_twice(double rounded_away) {
  return 2 * rounded_away;
}

// The norm of the difference of a gradient between two backends in a quantised recipe. An operand
// near the midpoint between two numbers of its format rounds to either, in fp4 by up to half of its
// value; a tensor's amax that differs in its last bit affects all operands, and a token near the
// border goes to another expert. With twelve slightly different scales of the embedding, recipe
// nvfp4 differed by 16% to 35% in the experts of a small model. The ops themselves are tested to
// the bit (fake_quantise, product scales); this rule only has to detect a missing part, which
// changes the gradient by about 100%.
inline double two_quantised_backends(double root_of_squares) {
  return 0.5 * root_of_squares;
}
// The same of the error of an operand, relative: single roundings hardly change it.
inline double two_quantised_errors() {
  return 0.25;
}

// Logits of another program from the same fp32 weights, as promised in docs/interop.md. There are
// about a hundred roundings, each relative to the largest element of its tensor.
inline double other_program(double largest) {
  return 1e-4 * std::abs(largest);
}

// A central difference of a loss computed in T, over a distance that changes the loss by 1/50.
// Covers the rounding of the two losses and the third derivative, each with the tolerance of two
// backends.
template <typename T>
double central_difference(double difference) {
  return 2 * two_backends<T>(difference);
}

// A value computed from numbers printed with `decimals` decimals, which enter it with this factor.
inline double printed(int decimals, double factor = 1) {
  return 0.5 * factor * std::pow(10.0, -decimals);
}

// The relative error of a standard deviation of n samples: 4.5 standard errors of 1 / sqrt(2 (n -
// 1)).
inline double sampled_deviation(double n) {
  return 4.5 / std::sqrt(2 * (n - 1));
}

// Upper limit of Pearson's chi-square with `freedom` degrees of freedom, 5 standard deviations
// above the mean (Wilson and Hilferty's cube). Correct draws exceed it about once in 10^6.
inline double chi_square(double freedom) {
  const double variance = 2 / (9 * freedom);
  return freedom * std::pow(1 - variance + 5 * std::sqrt(variance), 3);
}

}  // namespace assay::tol
