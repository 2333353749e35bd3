// Proves a hand-written gradient: f'(x) = Im f(x + ih) / h with h = 1e-50 has no cancellation, so
// the derivative is correct up to rounding. f takes std::vector<Complex> and returns the scalar
// whose gradient is claimed. Functions with branches (max, top-K, abs) branch on the real part.
#pragma once

#include <cmath>
#include <complex>
#include <functional>
#include <vector>

namespace assay::ref {

using Complex = std::complex<double>;
using Vector = std::vector<double>;
using ComplexVector = std::vector<Complex>;

// Largest |claimed - complex step| over the elements, relative to the largest |derivative|. NaN
// counts as infinity.
inline double complex_step_error(const std::function<Complex(const ComplexVector&)>& f,
                                 const Vector& x, const Vector& claimed) {
  constexpr double h = 1e-50;
  ComplexVector z(x.begin(), x.end());
  double worst = 0, largest = 1e-300;
  for (size_t i = 0; i < x.size(); ++i) {
    z[i] = {x[i], h};
    const double derivative = f(z).imag() / h;
    z[i] = x[i];
    const double error = std::abs(derivative - claimed[i]);
    worst = std::max(worst, std::isnan(error) ? INFINITY : error);
    largest = std::max(largest, std::abs(derivative));
  }
  return worst / largest;
}

inline double real_part(double x) {
  return x;
}
inline double real_part(const Complex& x) {
  return x.real();
}

}  // namespace assay::ref
