// Attention backward in bf16 by wgmma and TMA, for long sequences and heads of 64.
#pragma once

#include "ops/attention.h"

namespace assay::gpu {

// True if these kernels are faster than mma.sync: below two blocks of 128 rows, the smaller blocks
// of mma.sync waste less. At D = 128 the sums of dk and dv leave no registers for whole fragments.
inline bool wgmma_pays(const AttentionBackward<bf16>& a) {
  return a.head_dim == 64 && a.sequence >= 256;
}
void attention_backward_wgmma(Exec on, const AttentionBackward<bf16>& a);

}  // namespace assay::gpu
