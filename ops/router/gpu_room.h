// The shared memory of ops/router.cu: what a block takes, for the launch and for plans.
#pragma once

#include <cstdint>

#include "base/math.h"

namespace assay::gpu::router {

constexpr int64_t kFixedBytes = 7 << 10;  // of the arrays of fixed size
constexpr int64_t kRowWidth = 128;        // a row's words are a multiple of it

constexpr int row_words(int64_t experts) {
  return int(round_up(experts, kRowWidth));
}
// Of a block, and of each of its warps.
constexpr int64_t fixed_bytes(int64_t experts) {
  return 2 * experts * int64_t{sizeof(float)};
}
constexpr int64_t warp_bytes(int64_t experts, int64_t k) {
  return (row_words(experts) + 2 * k) * int64_t{sizeof(float)};
}
// The warps that fit into a block with shared_bytes; 0 or less: none.
constexpr int64_t warps_that_fit(int64_t experts, int64_t k, int64_t shared_bytes) {
  const int64_t left = shared_bytes - kFixedBytes - fixed_bytes(experts);
  return left < 0 ? 0 : left / warp_bytes(experts, k);
}

}  // namespace assay::gpu::router
