#include "ops/quantise_format.h"

#include <string>

#include "base/check.h"

namespace assay {

void require_whole_blocks(std::string_view tensor, ScaleKind kind, int64_t k) {
  const int64_t block = block_shape(kind).columns;
  if (k % block == 0) return;
  throw UserError(strprintf("%s: %ld elements along the sum, not a multiple of the block of %ld",
                            std::string(tensor).c_str(), long(k), long(block)),
                  strprintf("make it %ld or %ld, or leave this tensor in bf16",
                            long(k / block * block), long(padded_length(kind, k))));
}

}  // namespace assay
