// Dense matrix products on a GPU, row-major: d (m, n) = f[0] op(a) op(b) + f[1] c, summed in float
// and rounded once (for d = c the product as well).
//
// cuda/matmul_cublaslt.cpp calls cuBLASLt, loaded at run time; under cuda/simt plain loops take its
// place. Neither allocates after the first call of a shape; on.workspace is the library's.
#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "cuda/exec.h"

namespace assay::gpu {

// What a library's product may want of Exec::workspace.
inline constexpr int64_t kMatmulWorkspaceBytes = int64_t{32} << 20;

enum class Element { kFloat, kBf16 };
template <typename T>
inline constexpr Element element_of = sizeof(T) == 2 ? Element::kBf16 : Element::kFloat;

struct Matmul {
  void* d;                  // out (m, n)
  const void* c = nullptr;  // in  (m, n)   optional; may be d
  const void* a;            // in  (m, k), or (k, m) where it is transposed
  const void* b;            // in  (k, n), or (n, k) where it is transposed
  int64_t m, n, k;
  enum class Form { kPlain, kTransposed } a_form = Form::kPlain, b_form = Form::kPlain;
  Element operands;  // of a and b
  Element result;    // of c and d
  // f, on the device: f[1] is 0 where there is no c. Null: 1, 1.
  const float* factors = nullptr;
};

void matmul(Exec on, const Matmul& p);

}  // namespace assay::gpu
