// cuBLASLt for the products of cuda/matmul.h and cuda/scaled_matmul.h: descriptors, and an
// algorithm per shape. Private to the files of the device layer.
//
// The library is column-major: row-major d (m, n) is its D (n, m), and d = a b is its D = A B with
// our b as its A and our a as its B, as they are in memory.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "cuda/cublaslt.h"
#include "cuda/matmul.h"

namespace assay::gpu {

// UserError with the library's message, unless `status` is success. `doing` completes "cuBLASLt
// failed while ...".
void cublas_check(cublasStatus_t status, const char* doing);
cublasLtHandle_t cublaslt_handle();
// The alignment of p in bytes, at most 256.
uint32_t pointer_alignment(const void* p);
cudaDataType_t cuda_type(Element e);

// Lives as long as the program; one per shape, types and alignments.
struct ProductPlan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;  // named as in cuda/matmul.h
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
};

struct Alignments {
  uint32_t a, b, c, d;
  auto operator<=>(const Alignments&) const = default;
};

// A product that sums in float; `factors`: whether the factors are in host or device memory.
cublasLtMatmulDesc_t product_desc(cublasLtPointerMode_t factors);
template <typename Value>
void set_product(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, Value value) {
  cublas_check(cublaslt().desc_set(desc, which, &value, sizeof value), "describing a product");
}
// `rows` is the contiguous dimension.
cublasLtMatrixLayout_t matrix_layout(cudaDataType_t type, int64_t rows, int64_t columns);
// A product in messages. The text is made only when a call fails.
struct ProductName {
  int64_t m, n, k;
  const char* operands = "";  // " of quantised operands"
  std::string text() const;
};

// Sets plan.algorithm to the library's first proposal that adds partial sums in float, so that a
// result is rounded once and the same call gives the same bits. UserError if there is none.
void choose_algorithm(ProductPlan& plan, const Alignments& alignments, size_t workspace,
                      const ProductName& name);

// Aborts unless the workspace is aligned to 256 bytes, as the library requires.
void require_workspace(Exec on, const ProductName& name);
struct ProductPointers {
  const void *a, *b;
  const void* c;  // null: nothing is added
  void* d;
  const float* factors;  // on the device; null: 1, 1
};
// Queues the product on the stream of on.gpu.
void start_product(Exec on, const ProductPlan& plan, const ProductPointers& p,
                   const ProductName& name);

}  // namespace assay::gpu
