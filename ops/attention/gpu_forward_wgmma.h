// Attention forward in bf16 by wgmma and TMA, for long sequences and heads of 64 or 128.
#pragma once

#include "ops/attention.h"

namespace assay::gpu {

// True if this kernel is faster than mma.sync: below two blocks of 128 queries, the smaller blocks
// of mma.sync waste less.
inline bool wgmma_pays(const AttentionForward<bf16>& a) {
  return a.head_dim >= 64 && a.sequence >= 256;
}
void attention_forward_wgmma(Exec on, const AttentionForward<bf16>& a);

}  // namespace assay::gpu
