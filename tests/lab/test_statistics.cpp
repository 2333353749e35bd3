// The expected numbers were computed with mpmath at 40 digits. It has no Student's t, so the
// quantile is the root of
//   betainc(nu/2, 1/2, 0, nu/(nu+q^2), regularized=True) - 0.05
// and mean, deviation and interval follow from their definitions on the decimal numbers below.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "lab/runs/statistics.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/tolerance.h"

namespace assay::test_statistics {
namespace {

constexpr std::array kA = {3.2725, 3.2769, 3.2778, 3.2684, 3.2796};
constexpr std::array kB = {3.2758, 3.2790, 3.2761, 3.2712, 3.2835};

struct Expected {
  size_t n;
  double mean, sd, low, high;
};

const Expected kOfA[] = {
    {2, 3.2747, 0.0031112698372208, 3.2467463495804157, 3.3026536504195844},
    {3, 3.2757333333333333, 0.0028360771028541, 3.2686881272487018, 3.2827785394179648},
    {5, 3.27504, 0.0045390527646195, 3.2694040215962247, 3.2806759784037753},
};

const Expected kPaired[] = {
    {2, -0.0027, 0.0008485281374239, -0.0103237228417048, 0.0049237228417048},
    {3, -0.0012333333333333, 0.0026102362600603, -0.0077175196635272, 0.0052508529968605},
    {5, -0.00208, 0.0022140460699814, -0.0048291012954604, 0.0006691012954604},
};

// The inputs are rounded to double, which moves a difference of numbers near 3 by units of their
// last place.
void require_close(double found, double expected, const std::string& what) {
  const double allowed = tol::elementary_in_double(16, 3.3);
  INFO(what << ": " << found << ", expected " << expected << ", error "
            << std::abs(found - expected) / allowed << " of what is allowed");
  REQUIRE(std::abs(found - expected) <= allowed);
}

void require_equal(const Summary& s, const Expected& e) {
  INFO("n = " << e.n);
  REQUIRE(s.n == int64_t(e.n));
  require_close(s.mean, e.mean, "mean");
  require_close(s.sd.value(), e.sd, "deviation");
  require_close(s.interval95.value().low, e.low, "low");
  require_close(s.interval95.value().high, e.high, "high");
}

}  // namespace

TEST_CASE("mean, deviation and interval of 2, 3 and 5 seeds") {
  for (const Expected& e : kOfA) require_equal(summarise(std::span(kA).first(e.n)), e);
}

TEST_CASE("paired differences of 2, 3 and 5 seeds") {
  for (const Expected& e : kPaired)
    require_equal(summarise_paired(std::span(kA).first(e.n), std::span(kB).first(e.n)), e);
}

TEST_CASE("one seed has no deviation and no interval") {
  const Summary s = summarise(std::array{3.28});
  REQUIRE(s.n == 1);
  REQUIRE(s.mean == 3.28);
  REQUIRE(!s.sd);
  REQUIRE(!s.interval95);
  REQUIRE(!summarise_paired(std::array{3.28}, std::array{3.27}).interval95);
}

TEST_CASE("a few equal values: exactly their value, a deviation of 0, no interval") {
  const Summary s = summarise(std::array{0.1, 0.1, 0.1});
  REQUIRE(s.mean == 0.1);
  REQUIRE(s.sd.value() == 0);
  REQUIRE(s.no_spread());
  REQUIRE(!s.interval95);
  REQUIRE(student95(s)->low == 0.1);
  REQUIRE(student95(s)->high == 0.1);
  REQUIRE(!summarise(std::array{0.1, 0.2}).no_spread());
  REQUIRE(!summarise(std::array{0.1}).no_spread());
  // Of five the sign test has p = 2 / 2^5, of six 2 / 2^6.
  for (const size_t n : {2u, 5u, 6u, 9u}) {
    const Summary equal = summarise(std::vector<double>(n, 0.1));
    REQUIRE(equal.interval95.has_value() == (n >= 6));
    REQUIRE(p_value(equal, 0).value() == 2 / std::exp2(double(n)));
    REQUIRE(p_value(equal, 0.1).value() == 1);
    REQUIRE(values_needed(equal, 0) == std::max<int64_t>(int64_t(n), 6));
    REQUIRE(!values_needed(equal, 0.1));
  }
  // Differences that are equal but for the rounding of the numbers.
  REQUIRE(summarise_paired(std::array{3.3, 3.1}, std::array{3.2, 3.0}).no_spread());
}

TEST_CASE("a resolution widens the interval, and a mean within it is not excluded") {
  const Summary plain = summarise(std::array{-48.0, -24.0, -36.0, -36.0});
  const Summary s = with_resolution(plain, 10, 24);
  REQUIRE(s.mean == plain.mean);
  require_close(s.interval95->low, plain.interval95->low - 10, "low");
  require_close(s.interval95->high, plain.interval95->high + 24, "high");
  REQUIRE(student95(s)->high == plain.interval95->high);
  require_close(p_value(s, s.interval95->low).value(), 0.05, "at the lower end");
  require_close(p_value(s, s.interval95->high).value(), 0.05, "at the upper end");
  REQUIRE(p_value(s, -12).value() == 1);  // 24 above the mean
  REQUIRE(!values_needed(s, -12));
  REQUIRE(values_needed(s, 0).value() > values_needed(plain, 0).value());
  const Summary equal = with_resolution(summarise(std::array{-24.0, -24.0}), 24, 24);
  REQUIRE(!equal.interval95);
  REQUIRE(p_value(equal, 0).value() == 1);
  REQUIRE(p_value(equal, 1).value() == 0.5);
}

TEST_CASE("a non-finite value is refused by name") {
  const double nan = std::nan(""), infinity = std::numeric_limits<double>::infinity();
  const std::array good = {1.0, 2.0, 3.0};
  for (const double bad : {nan, infinity, -infinity}) {
    const std::array values = {1.0, bad, 3.0};
    expect_error([&] { summarise(values); }, "value 2 of 3 is");
    expect_error([&] { summarise_paired(values, good); }, "value 2 of 3 is");
    expect_error([&] { summarise_paired(good, values); }, "value 2 of 3 is");
  }
  // Differences inf - inf are refused too.
  const std::array both = {infinity, 2.0};
  expect_error([&] { summarise_paired(both, both); }, "value 1 of 2 is inf");
}

TEST_CASE("p is 0.05 at the ends of the 95% interval") {
  for (const Expected& e : kOfA) {
    const Summary s = summarise(std::span(kA).first(e.n));
    require_close(p_value(s, s.interval95->low).value(), 0.05, "at the lower end");
    require_close(p_value(s, s.interval95->high).value(), 0.05, "at the upper end");
    REQUIRE(p_value(s, s.mean).value() == 1);
  }
  // Of t = 2 with 4 degrees of freedom; 0.1161 in tables of the distribution.
  const Summary five = summarise(std::array{-2.0, -1.0, 0.0, 1.0, 2.0});
  require_close(p_value(five, std::sqrt(2.0)).value(), 0.116116523516816, "t = 2");
  REQUIRE(!p_value(summarise(std::array{1.0}), 0));
}

TEST_CASE("Holm multiplies the k-th smallest of m by m - k + 1, in order") {
  const std::vector<double> adjusted = holm(std::array{0.04, 0.01, 0.5, 0.03});
  const double expected[] = {0.09, 0.04, 0.5, 0.09};
  for (size_t i = 0; i < 4; ++i) require_close(adjusted[i], expected[i], "adjusted");
  REQUIRE(holm(std::array{0.9, 0.8}) == std::vector<double>{1, 1});
  REQUIRE(holm({}).empty());
}

TEST_CASE("values needed for an interval that excludes a mean") {
  const Summary s = summarise(std::array{0.0, 1.0, 2.0});  // mean 1, deviation 1
  const int64_t n = values_needed(s, 0.25).value();
  const auto half = [](int64_t count) {  // of the interval of `count` values like these
    Summary more{.n = count, .mean = 0, .sd = 1.0, .interval95 = {}};
    return p_value(more, 0.75).value() < 0.05;
  };
  REQUIRE(half(n));
  REQUIRE(!half(n - 1));
  REQUIRE(values_needed(s, -9).value() == 3);  // as it is
  REQUIRE(!values_needed(s, 1));
  REQUIRE(!values_needed(s, 1.01));
  REQUIRE(!values_needed(summarise(std::array{1.0}), 0));
}

TEST_CASE("intervals that touch overlap; one contains its ends") {
  const Interval a{.low = 1, .high = 2};
  REQUIRE(a.overlaps({.low = 2, .high = 3}));
  REQUIRE(a.overlaps({.low = 0, .high = 9}));
  REQUIRE(!a.overlaps({.low = 2.5, .high = 3}));
  REQUIRE(!a.overlaps({.low = 0, .high = 0.5}));
  REQUIRE(a.contains(1));
  REQUIRE(a.contains(2));
  REQUIRE(!a.contains(2.1));
}

TEST_CASE("the exact binomial test is twice the smaller tail") {
  const auto is = [](double p, double expected) { return std::abs(p - expected) < 1e-12; };
  REQUIRE(is(binomial_p(5, 5, 0.5), 2 / 32.0));
  REQUIRE(is(binomial_p(0, 6, 0.5), 2 / 64.0));
  REQUIRE(is(binomial_p(1, 6, 0.5), 14 / 64.0));
  REQUIRE(is(binomial_p(4, 5, 0.2), 2 * (5 * 0.0016 * 0.8 + 0.00032)));
  REQUIRE(is(binomial_p(1, 4, 0.25), 1));
  REQUIRE(binomial_p(0, 0, 0.5) == 1);
}

}  // namespace assay::test_statistics
