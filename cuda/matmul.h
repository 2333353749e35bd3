// Dense matrix products on a GPU, row-major: d (m, n) = f[0] op(a) op(b) + f[1] c, summed in float
// and rounded once. If d is c, cuBLASLt also rounds the product before it adds it.
//
// cuda/matmul_cublaslt.cpp calls cuBLASLt, loaded at run time, with on.workspace as its workspace;
// after the first call of a shape nothing is allocated. In the SIMT emulator plain loops replace it
// (cuda/simt/matmul.cpp).
#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "cuda/exec.h"

namespace assay::gpu {

// The bytes of Exec::workspace for cuBLASLt products, where no tune file asks for more.
inline constexpr int64_t kMatmulWorkspaceBytes = int64_t{32} << 20;

enum class Element { kFloat, kBf16 };
template <typename T>
inline constexpr Element element_of = sizeof(T) == 2 ? Element::kBf16 : Element::kFloat;

struct Matmul {
  void* d;                  // out (m, n)
  const void* c = nullptr;  // in  (m, n)   optional; may be d
  const void* a;            // in  (m, k), or (k, m) if transposed
  const void* b;            // in  (k, n), or (n, k) if transposed
  int64_t m, n, k;
  enum class Form { kPlain, kTransposed } a_form = Form::kPlain, b_form = Form::kPlain;
  Element operands;  // of a and b
  Element result;    // of c and d
  // f, two floats in device memory; f[1] must be 0 if c is null. Null: f = (gain, 1).
  const float* factors = nullptr;
  float gain = 1.0f;
};

void matmul(Exec on, const Matmul& p);

}  // namespace assay::gpu
