#include "lab/runs/statistics.h"

#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <vector>

#include "base/check.h"

namespace assay {
namespace {

constexpr double kUpper95 = 0.975;  // of a two-sided interval

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

}  // namespace

Summary summarise(std::span<const double> values) {
  CHECK(!values.empty(), "a summary of no values");
  require_finite(values);
  Summary s{.n = int64_t(values.size()), .mean = mean_of(values), .sd = {}, .interval95 = {}};
  if (s.n == 1) return s;
  double squares = 0;
  for (const double v : values) squares += (v - s.mean) * (v - s.mean);
  s.sd = std::sqrt(squares / double(s.n - 1));
  const boost::math::students_t distribution(double(s.n - 1));
  const double half =
      boost::math::quantile(distribution, kUpper95) * *s.sd / std::sqrt(double(s.n));
  s.interval95 = Interval{.low = s.mean - half, .high = s.mean + half};
  return s;
}

Summary summarise_paired(std::span<const double> a, std::span<const double> b) {
  CHECK(a.size() == b.size(), "%zu values paired with %zu", a.size(), b.size());
  require_finite(a);
  require_finite(b);
  std::vector<double> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = a[i] - b[i];
  return summarise(differences);
}

}  // namespace assay
