// Whole numbers of steps from values that were rounded to double. A coefficient is usually a
// quotient (tokens / parameters) and a fraction a decimal (0.2), so a step counts as reached if any
// value within half an ulp of the double reaches it.
#pragma once

#include <cstdint>

namespace assay {

// floor(factor * value / divisor), with value raised by half an ulp; value >= 0, the others > 0.
// UserError if the result does not fit in 63 bits.
int64_t whole_quotient(int64_t factor, double value, __int128 divisor);

// ceil(fraction * steps), with fraction lowered by half an ulp: a fifth of 10 is 2 although the
// double 0.2 is above 1/5. UserError unless 0 < fraction <= 1.
int64_t fraction_of_steps(int64_t steps, double fraction);

}  // namespace assay
