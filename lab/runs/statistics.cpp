#include "lab/runs/statistics.h"

#include <algorithm>
#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"

namespace assay {
namespace {

constexpr double kUpper95 = 0.975;  // of a two-sided interval
// Equal differences of numbers that have 53 bits may differ by their rounding.
constexpr double kRounding = 1e-12;

void require_finite(std::span<const double> values) {
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i])) continue;
    throw UserError(
        strprintf("value %zu of %zu is %g, so their mean is undefined", i + 1, values.size(),
                  values[i]),
        "leave out the run whose loss is NaN or infinite; its log.txt has the step of the first");
  }
}

// Sums offsets from the first value, so that the mean of equal values is exact and has no spread.
double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double v : values) sum += v - values.front();
  return values.front() + sum / double(values.size());
}

// Half of Student's 95% interval of n values with this standard deviation.
double half_interval95(double sd, int64_t n) {
  const boost::math::students_t distribution(double(n - 1));
  return boost::math::quantile(distribution, kUpper95) * sd / std::sqrt(double(n));
}

// Of `mean` from what the resolution lets the summary's mean be.
double distance_to(const Summary& s, double mean) {
  return std::abs(std::clamp(mean, s.mean - s.below, s.mean + s.above) - mean);
}

}  // namespace

bool Summary::all_equal() const {
  return sd && *sd <= kRounding * std::abs(mean);
}

Summary summarise(std::span<const double> values) {
  CHECK(!values.empty(), "a summary of no values");
  require_finite(values);
  Summary s{.n = int64_t(values.size()), .mean = mean_of(values), .sd = {}, .interval95 = {}};
  if (s.n == 1) return s;
  double squares = 0;
  for (const double v : values) squares += (v - s.mean) * (v - s.mean);
  s.sd = std::sqrt(squares / double(s.n - 1));
  if (!s.all_equal() || s.n >= kFewestEqual) s.interval95 = student95(s);
  return s;
}

Summary with_resolution(Summary s, double below, double above) {
  s.below += below;
  s.above += above;
  if (s.interval95) {
    s.interval95->low -= below;
    s.interval95->high += above;
  }
  return s;
}

std::optional<Interval> student95(const Summary& s) {
  if (!s.sd) return std::nullopt;
  const double half = half_interval95(*s.sd, s.n);
  return Interval{.low = s.mean - half, .high = s.mean + half};
}

Summary summarise_paired(std::span<const double> a, std::span<const double> b) {
  CHECK(a.size() == b.size(), "%zu values paired with %zu", a.size(), b.size());
  require_finite(a);
  require_finite(b);
  std::vector<double> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = a[i] - b[i];
  return summarise(differences);
}

std::optional<double> p_value(const Summary& summary, double mean) {
  if (summary.n == 1) return std::nullopt;
  const double distance = distance_to(summary, mean);
  if (distance == 0) return 1;
  if (summary.all_equal()) return std::exp2(double(1 - summary.n));
  const boost::math::students_t distribution(double(summary.n - 1));
  const double t = distance / (*summary.sd / std::sqrt(double(summary.n)));
  return 2 * boost::math::cdf(boost::math::complement(distribution, t));
}

double binomial_p(int64_t hits, int64_t n, double share) {
  CHECK(0 <= hits && hits <= n, "%ld of %ld values", long(hits), long(n));
  if (n == 0) return 1;
  const boost::math::binomial distribution(double(n), share);
  const double at_most = boost::math::cdf(distribution, double(hits));
  const double at_least =
      hits == 0 ? 1 : boost::math::cdf(boost::math::complement(distribution, double(hits - 1)));
  return std::min(1.0, 2 * std::min(at_most, at_least));
}

std::vector<double> holm(std::span<const double> p) {
  std::vector<size_t> order(p.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] < p[b]; });
  std::vector<double> adjusted(p.size());
  double largest = 0;
  for (size_t k = 0; k < order.size(); ++k) {
    largest = std::max(largest, std::min(1.0, p[order[k]] * double(order.size() - k)));
    adjusted[order[k]] = largest;
  }
  return adjusted;
}

std::optional<int64_t> values_needed(const Summary& summary, double mean) {
  if (summary.n == 1) return std::nullopt;
  const double distance = distance_to(summary, mean);
  if (summary.all_equal()) {
    return distance > 0 ? std::optional(std::max(summary.n, kFewestEqual)) : std::nullopt;
  }
  for (int64_t n = summary.n; n <= kMostValues; ++n) {
    if (half_interval95(*summary.sd, n) < distance) return n;
  }
  return std::nullopt;
}

}  // namespace assay
