// The products of cuda/matmul.h in the SIMT emulator: plain loops, each sum in float in the order
// of k.
#include "cuda/matmul.h"

#include <vector>

#include "base/check.h"
#include "cuda/simt/run_grid.h"
#include "cuda/simt/stream.h"

namespace assay::gpu {

namespace {

float element(const void* p, Element type, int64_t i) {
  return type == Element::kFloat ? static_cast<const float*>(p)[i]
                                 : float(static_cast<const bf16*>(p)[i]);
}

// (rows, cols) in float, from the matrix or its transpose.
std::vector<float> plain(const void* p, Element type, Matmul::Form form, int64_t rows,
                         int64_t cols) {
  std::vector<float> out(static_cast<size_t>(rows * cols));
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      const int64_t at = form == Matmul::Form::kPlain ? i * cols + j : j * rows + i;
      out[static_cast<size_t>(i * cols + j)] = element(p, type, at);
    }
  }
  return out;
}

void multiply(const Matmul& p) {
  CHECK(p.m >= 0 && p.n >= 0 && p.k >= 0, "matmul: (%ld, %ld, %ld)", long(p.m), long(p.n),
        long(p.k));
  const std::vector<float> a = plain(p.a, p.operands, p.a_form, p.m, p.k);
  const std::vector<float> b = plain(p.b, p.operands, p.b_form, p.k, p.n);
  std::vector<float> sum(static_cast<size_t>(p.n));
  const float factor = p.factors ? p.factors[0] : p.gain,
              factor_of_c = p.factors ? p.factors[1] : 1;
  for (int64_t i = 0; i < p.m; ++i) {
    for (float& s : sum) s = 0;
    for (int64_t k = 0; k < p.k; ++k) {
      const float x = a[static_cast<size_t>(i * p.k + k)];
      const float* row = b.data() + k * p.n;
      for (int64_t j = 0; j < p.n; ++j) sum[static_cast<size_t>(j)] += x * row[j];
    }
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t at = i * p.n + j;
      const float value = factor * sum[static_cast<size_t>(j)] +
                          (p.c ? factor_of_c * element(p.c, p.result, at) : 0.0f);
      if (p.result == Element::kFloat) {
        static_cast<float*>(p.d)[at] = value;
      } else {
        round_to(static_cast<bf16*>(p.d)[at], value);
      }
    }
  }
}

}  // namespace

// Runs as a grid of one thread, because only kernels may access device memory.
void matmul(Exec on, const Matmul& p) {
  simt::enqueue(simt::stream_of(on), [p] {
    simt::run_grid("matmul", {1, 1, 1}, {1, 1, 1}, 0, [&] { multiply(p); });
  });
}

}  // namespace assay::gpu
