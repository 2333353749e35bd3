// A checksum of the bits of x (hash_floats of base/hash.h): a sum modulo 2^64 of words weighted by
// position. The order does not matter, so every backend computes the same value.
#pragma once

#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

struct Checksum {
  View<int64_t, 1> sum;    // out (1)   the bits of the unsigned sum
  View<const float, 1> x;  // in  (n)
};

void checksum(Exec on, const Checksum& a);

inline Cost checksum_cost(const Checksum& a) {
  return {.bytes = double(a.x.bytes()), .flops = 0};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (checksum.cu).
namespace gpu {
void checksum(Exec on, const Checksum& a);
}  // namespace gpu

}  // namespace assay
