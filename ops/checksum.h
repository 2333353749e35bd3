// A checksum of the bits of x (hash_floats of base/hash.h): a sum modulo 2^64 of words weighted by
// position. The order does not matter, so every backend computes the same value. T: float or bf16;
// the word of a bf16 is that of the float of its value.
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/view.h"
#include "cuda/exec.h"

namespace assay {

template <typename T>
struct Checksum {
  View<int64_t, 1> sum;  // out (1)   the bits of the unsigned sum
  View<const T, 1> x;    // in  (n)
  int64_t first = 0;     // position of x[0]: the sums of neighbouring parts add up to that of both
};

template <typename T>
void checksum(Exec on, const Checksum<T>& a);

template <typename T>
Cost checksum_cost(const Checksum<T>& a) {
  return {.bytes = view_bytes(a.x, a.sum), .flops = 0};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (checksum.cu).
namespace gpu {
void checksum(Exec on, const Checksum<float>& a);
void checksum(Exec on, const Checksum<bf16>& a);
}  // namespace gpu

}  // namespace assay
