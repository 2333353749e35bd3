// Dense products of quantised operands on a GPU that multiplies their formats natively:
//
//   d (m, n) = f[0] a b^T + f[1] c
//
// a (m, k) and b (n, k) stand for codes times scales; sums are in float and rounded once.
//
// Both operands have k contiguous, the only form that the hardware has for 8 bits. A product that
// sums along the other axis of a matrix needs a transposed copy of it (ops/quantise.h makes both
// copies from one read). Scales have the hardware layout of ops/quantise_format.h.
//
//   formats                                      compute capability
//   8 bits, one scale per tensor                 8.9, 9.0, 10.0, 12.0; not e5m2 by e5m2
//   e4m3, 1 x 128 by 1 x 128 or 128 x 128        9.0
//   e4m3 1 x 32 (MXFP8), e2m1 1 x 16 (NVFP4)     10.0, 12.0
//
// With scales of 1 x 128 or 128 x 128, m and n are multiples of 8. With other scales n is a
// multiple of 16 and m, the tokens of a transformer, is arbitrary (cuBLASLt's rules for 8 and 4
// bits: contiguous dimensions are multiples of 16 bytes, so k of e2m1 is one of 32).
//
// cuda/scaled_matmul_cublaslt.cpp calls cuBLASLt (12.9 or newer). In the SIMT emulator loops over
// the same layouts replace it (cuda/simt/scaled_matmul.cpp).
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
  const void* codes;   // in (lines, k)   row-major, two e2m1 per byte; aligned to 16 bytes
  const void* scales;  // in              kTensor: one float, the factor of the decoded codes;
                       //                 aligned to 16 bytes
  CodeKind kind;
};

struct ScaledMatmul {
  void* d;                  // out (m, n)
  const void* c = nullptr;  // in  (m, n)   optional; may be d
  CodeOperand a, b;         // k: a multiple of 16 (e2m1: 32) and of the block
  int64_t m, n, k;
  Element result;  // of c and d
  // kFast: sums of 8-bit products stay in the tensor cores' accumulators, which have fewer bits
  // than float. kPromoted: they are added to float sums every few blocks of k.
  enum class Sums { kFast, kPromoted } sums = Sums::kPromoted;
  // f, two floats in device memory; f[1] must be 0 if c is null. Null: f = (1, 1).
  const float* factors = nullptr;
};

void scaled_matmul(Exec on, const ScaledMatmul& p);
// Whether the toolkit that this program was built with has them (cuBLASLt 12.9); true without one.
bool built_with_scaled_matmul();

// Aborts on a shape that the library does not take. Every body of scaled_matmul() calls it first.
void check_scaled_matmul(const ScaledMatmul& p);

// Why a device of that compute capability (90 is 9.0) cannot multiply such operands; "" if it can.
std::string scaled_matmul_problem(const CodeKind& a, const CodeKind& b, int capability);

}  // namespace assay::gpu
