#include "ops/quantise_format.h"

#include <cmath>
#include <string>

#include "base/check.h"

namespace assay {

void require_whole_blocks(std::string_view tensor, ScaleKind kind, int64_t k) {
  const int64_t block = block_shape(kind).columns;
  if (k % block == 0) return;
  throw UserError(strprintf("%s: %ld elements along the sum, no multiple of the block of %ld",
                            std::string(tensor).c_str(), long(k), long(block)),
                  strprintf("make it %ld or %ld, or leave this tensor in bf16",
                            long(k / block * block), long(padded_length(kind, k))));
}

void require_finite_amax(std::string_view tensor, float amax) {
  if (std::isfinite(amax)) return;
  throw UserError(strprintf("%s: its largest magnitude is %f, it cannot be quantised",
                            std::string(tensor).c_str(), double(amax)),
                  "a value overflowed before: lower the learning rate, or find where with bf16");
}

}  // namespace assay
