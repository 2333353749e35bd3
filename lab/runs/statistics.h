// Statistics over seeds: mean, sample standard deviation, Student's 95% interval, and differences
// of runs that share a seed. A single value has no spread and no interval. Neither have a few equal
// values: Student's interval of them would be one point, as if they were certain. Their p is of the
// sign test, which takes kFewestEqual of them to decide.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace assay {

struct Interval {
  double low = 0;
  double high = 0;
  bool contains(double value) const { return low <= value && value <= high; }
  bool overlaps(const Interval& other) const { return low <= other.high && other.low <= high; }
};

struct Summary {
  int64_t n = 0;
  double mean = 0;
  std::optional<double> sd;  // sample: n - 1 in the denominator; absent for n = 1
  // student95(), widened by below and above; absent for n = 1 and no_spread().
  std::optional<Interval> interval95;
  // How much lower and higher the mean may be because the values were read on a grid.
  double below = 0, above = 0;

  bool all_equal() const;  // two or more values without a spread, but for rounding
  bool no_spread() const { return all_equal() && !interval95; }
};

// Where a sign test of equal values has p <= 0.05: 2 / 2^6 = 0.031.
constexpr int64_t kFewestEqual = 6;
// Why no_spread() decides nothing.
inline constexpr const char* kNoSpread = "equal in all seeds: no spread to judge by";

// Its mean, if there is one.
inline std::optional<double> mean(const std::optional<Summary>& s) {
  return s ? std::optional(s->mean) : std::nullopt;
}

// values must not be empty. UserError if one is not finite.
Summary summarise(std::span<const double> values);

// Summary of a[i] - b[i]; a and b have the same seeds in the same order. CHECKs equal sizes;
// UserError if a value is not finite.
Summary summarise_paired(std::span<const double> a, std::span<const double> b);

// The same with a resolution: the mean may be `below` lower and `above` higher.
Summary with_resolution(Summary summary, double below, double above);

// mean +- t(0.975, n - 1) sd / sqrt(n): one point if all values are equal. nullopt for n = 1.
std::optional<Interval> student95(const Summary& summary);

// Two-sided p-value of Student's t-test that the values come from a distribution with this mean, of
// the sign test if all values are equal: at most 0.05 where interval95 does not contain it. With a
// resolution, of the mean it allows that is nearest. nullopt for n = 1.
std::optional<double> p_value(const Summary& summary, double mean);

// Two-sided p-value of the exact binomial test that `hits` of n values have a probability of
// `share`: twice the smaller tail, at most 1. 1 for no values.
double binomial_p(int64_t hits, int64_t n, double share);

// Holm's adjustment of p-values for their number: the k-th smallest of m times m - k + 1, at least
// that of the smaller ones, at most 1. In the order of p.
std::vector<double> holm(std::span<const double> p);

// The smallest number of values, at least summary.n, whose interval95 would not contain `mean` if
// they had the same mean, standard deviation and resolution. nullopt for n = 1, or if more than
// kMostValues were needed.
constexpr int64_t kMostValues = 1000;
std::optional<int64_t> values_needed(const Summary& summary, double mean);

}  // namespace assay
