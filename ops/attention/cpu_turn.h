// Stores rows of dq and dk, for the CPU bodies of attention.
#pragma once

#include "ops/attention.h"
#include "ops/attention/cpu_tile.h"
#include "ops/quantise/cpu_amax.h"

namespace assay::attention {

// Stores the scaled sum (D) of the query or key at position t, turned back if there is a table.
template <int D, typename T>
[[gnu::always_inline]] inline void store_turned(T* to, const float* sum, float scale,
                                                const AttentionBackward<T>& a, int64_t t) {
  constexpr int kHalf = D / 2;
  if (a.cos.empty()) {
    for (int d = 0; d < D; d += kVector) store(to + d, load(sum + d) * scale);
  } else {
    for (int d = 0; d < kHalf; d += kVector) {
      const f32x16 x = load(sum + d) * scale, y = load(sum + kHalf + d) * scale;
      const f32x16 c = load(a.cos.row(t) + d), s = load(a.sin.row(t) + d);
      store(to + d, x * c + y * s);
      store(to + kHalf + d, y * c - x * s);
    }
  }
  update_amax(a.dqk_amax, to, D);
}

}  // namespace assay::attention
