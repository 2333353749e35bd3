#include "base/step_count.h"

#include <cmath>
#include <limits>

#include "base/check.h"

namespace assay {
namespace {

using Wide = __int128;

// A double as an integer times a power of two, shifted by half a unit of the last place:
// value + half / 2 ulp = mantissa * 2^exponent with half in {-1, 0, 1}.
struct Scaled {
  Wide mantissa;  // below 2^55
  int exponent;
};
Scaled scaled(double value, int half) {
  int exponent = 0;
  const double m = std::frexp(value, &exponent);  // in [1/2, 1)
  return {Wide(std::ldexp(m, 53)) * 2 + half, exponent - 54};
}

[[noreturn]] void throw_too_large() {
  throw UserError("the number of steps does not fit in 63 bits", "reduce the model or the run");
}

}  // namespace

int64_t whole_quotient(int64_t factor, double value, Wide divisor) {
  CHECK(factor > 0 && value >= 0 && divisor > 0, "%ld * %g / %g", static_cast<long>(factor), value,
        static_cast<double>(divisor));
  if (static_cast<double>(factor) * value > 0x1p120) throw_too_large();
  const Scaled upper = scaled(value, 1);
  const Wide product = upper.mantissa * factor;  // below 2^118
  Wide whole = 0;
  if (upper.exponent >= 0) {
    whole = product << upper.exponent;
  } else if (upper.exponent > -120) {
    whole = product >> -upper.exponent;
  }
  const Wide quotient = whole / divisor;
  if (quotient > std::numeric_limits<int64_t>::max()) throw_too_large();
  return static_cast<int64_t>(quotient);
}

int64_t fraction_of_steps(int64_t steps, double fraction) {
  if (!(fraction > 0 && fraction <= 1))
    throw UserError(strprintf("the fraction is %g", fraction), "give a fraction > 0 and <= 1");
  // ceil(x) = -floor(-x)
  Scaled lower = scaled(fraction, -1);
  lower.mantissa = -lower.mantissa;
  if (lower.exponent < -120) return steps > 0 ? 1 : 0;
  return static_cast<int64_t>(-((lower.mantissa * steps) >> -lower.exponent));
}

}  // namespace assay
