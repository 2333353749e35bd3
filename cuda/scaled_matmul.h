// Dense products of quantised operands on a GPU that multiplies their formats:
//
//   d (m, n) = f[0] a b^T + f[1] c        a (m, k), b (n, k) decoded: codes times scales; summed in float, rounded once
//
// Both operands lie with k contiguous, the only form that the hardware has for 8 bits: what is
// summed along the other axis of a matrix needs a transposed copy of it (ops/quantise.h makes both
// from one read). Scales lie as ops/quantise_format.h has them for the hardware.
//
//   formats                                      compute capability
//   8 bits, one scale a tensor                   9.0, 10.0, 12.0: not e5m2 by e5m2
//   e4m3, 1 x 128 by 1 x 128 or 128 x 128        9.0
//   e4m3 1 x 32 (MXFP8), e2m1 1 x 16 (NVFP4)     10.0, 12.0
//
// Where scales are of 1 x 128 or 128 x 128, m and n are multiples of 8; of other kinds n is one of
// 16 (cuBLASLt's rules for 8 and 4 bits: dimensions that lie contiguous in 16 bytes; a
// transformer's m, its tokens, is any).
//
// cuda/scaled_matmul_cublaslt.cpp calls cuBLASLt (12.9 or newer); under cuda/simt loops over the
// same layouts take its place.
#pragma once

#include <cstdint>
#include <string>

#include "cuda/exec.h"
#include "cuda/matmul.h"

namespace assay::gpu {

enum class CodeFormat { kE4M3, kE5M2, kE2M1 };
enum class CodeScales { kTensor, k1x128, k128x128, k1x32, k1x16 };

struct CodeKind {
  CodeFormat format;
  CodeScales scales;
  bool operator==(const CodeKind&) const = default;
};
struct CodeOperand {
  const void* codes;   // in (lines, k)   row-major, two e2m1 in a byte; aligned to 16 bytes
  const void* scales;  // in              of kTensor: one float, the factor of the decoded codes
  CodeKind kind;
};

struct ScaledMatmul {
  void* d;                  // out (m, n)
  const void* c = nullptr;  // in  (m, n)   optional; may be d
  CodeOperand a, b;         // k: a multiple of 16 and of the block
  int64_t m, n, k;
  Element result;  // of c and d
  // kFast: sums of 8-bit products stay in the tensor cores' own accumulators, which keep fewer than
  // float's bits. kPromoted: they are added to float every few blocks of k.
  enum class Sums { kFast, kPromoted } sums = Sums::kPromoted;
  // f, on the device: f[1] is 0 where there is no c. Null: 1, 1.
  const float* factors = nullptr;
};

void scaled_matmul(Exec on, const ScaledMatmul& p);

// The shapes that the library takes: every body of scaled_matmul() checks them first.
void check_scaled_matmul(const ScaledMatmul& p);

// Why a device of that compute capability (90: 9.0) has no product of such operands; "": it has.
std::string scaled_matmul_problem(const CodeKind& a, const CodeKind& b, int capability);

}  // namespace assay::gpu
