// Router forward with a token's keys in the registers of a warp (forward_registers.cu).
#pragma once

#include "ops/router.h"

namespace assay::gpu::router {

constexpr int64_t kMostExpertsInRegisters = 256, kMostChosenInRegisters = 32;

inline bool forward_fits_registers(const RouterForward& a) {
  return a.logits.dim[1] <= kMostExpertsInRegisters && a.expert.dim[1] <= kMostChosenInRegisters;
}
// expert, gate, logsumexp, score_sum, and the partial sums of each piece.
void forward_in_registers(Exec on, const RouterForward& a);

}  // namespace assay::gpu::router
