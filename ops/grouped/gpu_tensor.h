// The grouped products in bf16 on tensor cores, by wgmma and by mma.sync. They take what
// whole_pieces() accepts.
#pragma once

#include <initializer_list>

#include "ops/grouped_linear.h"
#include "ops/grouped_swiglu.h"

namespace assay::gpu {

void grouped_forward_wgmma(Exec on, const GroupedForward<bf16>& a);
void grouped_dgrad_wgmma(Exec on, const GroupedDgrad<bf16>& a);
void grouped_wgrad_wgmma(Exec on, const GroupedWgrad<bf16>& a);
void grouped_swiglu_forward_wgmma(Exec on, const GroupedSwigluForward<bf16>& a);
void grouped_swiglu_dgrad_wgmma(Exec on, const GroupedSwigluDgrad<bf16>& a);

void grouped_forward_mma(Exec on, const GroupedForward<bf16>& a);
void grouped_dgrad_mma(Exec on, const GroupedDgrad<bf16>& a);
void grouped_wgrad_mma(Exec on, const GroupedWgrad<bf16>& a);
void grouped_swiglu_forward_mma(Exec on, const GroupedSwigluForward<bf16>& a);
void grouped_swiglu_dgrad_mma(Exec on, const GroupedSwigluDgrad<bf16>& a);

// True if copies of 16 bytes apply: rows are multiples of 16 bytes from aligned addresses.
inline bool whole_pieces(std::initializer_list<const void*> bases, int64_t out, int64_t in) {
  for (const void* base : bases) {
    if (reinterpret_cast<uintptr_t>(base) % 16 != 0) return false;
  }
  return out % 8 == 0 && in % 8 == 0;
}

}  // namespace assay::gpu
