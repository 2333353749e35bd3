// Sorts the N K assignments by expert: the slots of one expert are contiguous, in token order.
//
//   slot(t, k)        position of assignment (t, k), stable by (t, k)
//   token[slot(t, k)] = t
//   offsets[e]        first slot of expert e; offsets[E] = N K
//
// Integers, exact. Every id must be in [0, E); only the CPU checks it. Reference:
// tests/ref/dispatch.h.
#pragma once

#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

struct Dispatch {
  View<int32_t, 1> offsets;       // out (E + 1)
  View<int32_t, 1> token;         // out (N K)
  View<int32_t, 2> slot;          // out (N, K)
  View<int32_t, 2> partial;       // tmp (dispatch_pieces(N), E)
  View<const int32_t, 2> expert;  // in  (N, K)
};

void dispatch(Exec on, const Dispatch& a);
// The tokens are counted in pieces of kDispatchPieceTokens; the results do not depend on it.
constexpr int64_t kDispatchPieceTokens = 256;
int64_t dispatch_pieces(int64_t tokens);

inline Cost dispatch_cost(const Dispatch& a) {
  return {.bytes = view_bytes(a.expert, a.slot, a.token, a.offsets), .flops = 0};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (dispatch.cu).
namespace gpu {
void dispatch(Exec on, const Dispatch& a);
// The shared memory of its kernels, in bytes of a block; UserError if the GPU has less.
constexpr int64_t dispatch_shared_bytes(int64_t experts, int64_t k) {
  return (experts + kDispatchPieceTokens * k) * int64_t{sizeof(int32_t)};
}
void require_dispatch_room(int64_t experts, int64_t k, int64_t shared_bytes);
}  // namespace gpu

}  // namespace assay
