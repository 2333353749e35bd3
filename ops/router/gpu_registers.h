// Router forward with a token's keys in the registers of a warp (forward_registers.cu).
#pragma once

#include "ops/router.h"

namespace assay::gpu::router {

constexpr int64_t kMostExpertsInRegisters = 256, kMostChosenInRegisters = 32;

inline bool forward_fits_registers(int64_t experts, int64_t k) {
  return experts <= kMostExpertsInRegisters && k <= kMostChosenInRegisters;
}
inline bool forward_fits_registers(const RouterForward& a) {
  return forward_fits_registers(a.logits.dim[1], a.expert.dim[1]);
}
// expert, gate, logsumexp, score_sum, and the partial sums of each piece.
void forward_in_registers(Exec on, const RouterForward& a);

}  // namespace assay::gpu::router
