// Calls one op on arrays of the CPU, forward and backward, and compares the gradient with a
// difference quotient.
#include <cmath>
#include <cstdio>
#include <vector>

#include "ops/rmsnorm.h"

using namespace assay;

namespace {

constexpr int64_t kRows = 4, kWidth = 64;
using Array = std::vector<float>;

View<float, 2> matrix(Array& x) {
  return {x.data(), {kRows, kWidth}};
}
View<float, 1> vector(Array& x) {
  return {x.data(), {int64_t(x.size())}};
}

// sum_i dy_i y_i: the scalar whose gradient by x is what backward makes of dy.
double weighted_sum(Exec on, Array x, Array weight, const Array& dy, Array& rstd) {
  Array y(x.size());
  rmsnorm_forward<float>(
      on, {.y = matrix(y), .rstd = vector(rstd), .x = matrix(x), .weight = vector(weight)});
  double sum = 0;
  for (size_t i = 0; i < y.size(); ++i) sum += double(dy[i]) * double(y[i]);
  return sum;
}

}  // namespace

int main() {
  const Exec on{.threads = 2};
  Array x(kRows * kWidth), dy(x.size()), weight(kWidth), rstd(kRows);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::sin(float(i)), dy[i] = std::cos(3 * float(i));
  for (size_t c = 0; c < weight.size(); ++c) weight[c] = 1 + 0.1f * std::cos(float(c));
  const double sum = weighted_sum(on, x, weight, dy, rstd);

  Array dx(x.size(), 0.0f), dweight(kWidth, 0.0f);  // backward adds to both
  const int64_t blocks = rmsnorm_backward_blocks(kRows);
  Array partial(size_t(blocks * kWidth));
  rmsnorm_backward<float>(on, {.dresid = matrix(dx),
                               .dweight = vector(dweight),
                               .partial = {partial.data(), {blocks, kWidth}},
                               .dy = matrix(dy),
                               .resid = matrix(x),
                               .weight = vector(weight),
                               .rstd = vector(rstd)});

  double worst = 0;
  for (size_t i = 0; i < x.size(); i += 17) {
    const float step = 1e-2f;
    Array above = x, below = x, unused(kRows);
    above[i] += step;
    below[i] -= step;
    const double quotient = (weighted_sum(on, above, weight, dy, unused) -
                             weighted_sum(on, below, weight, dy, unused)) /
                            (double(above[i]) - double(below[i]));
    worst = std::fmax(worst, std::fabs(quotient - double(dx[i])));
  }
  std::printf("sum(dy * y) = %.5f; dx[0] = %.5f, dweight[0] = %.5f\n", sum, double(dx[0]),
              double(dweight[0]));
  std::printf("largest difference from the quotients: %.1e\n", worst);
  return worst < 1e-3 ? 0 : 1;
}
