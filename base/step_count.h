// Whole steps from numbers that were rounded to a double. A coefficient is usually a quotient
// (tokens / parameters), a fraction a decimal (0.2): what is reached anywhere within half a unit of
// its last place counts as reached.
#pragma once

#include <cstdint>

namespace assay {

// floor(factor * value / divisor); value >= 0, the others positive. UserError when it does not fit
// 63 bits.
int64_t whole_quotient(int64_t factor, double value, __int128 divisor);

// ceil(fraction * steps): a fifth of 10 is 2 although the double 0.2 is above 1/5. UserError
// outside (0, 1].
int64_t fraction_of_steps(int64_t steps, double fraction);

}  // namespace assay
