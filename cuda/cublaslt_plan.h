// What the products of cuda/matmul.h and cuda/scaled_matmul.h ask of cuBLASLt: descriptors, and an
// algorithm for a shape. Private to the files of the device layer.
//
// The library counts columns first: row-major d (m, n) is its D (n, m), and d = a b its D = B A
// with the operands as they lie in memory.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>

#include "cuda/cublaslt.h"
#include "cuda/matmul.h"

namespace assay::gpu {

// UserError with what the library says, unless it succeeded.
void cublas_check(cublasStatus_t status, const char* doing);
cublasLtHandle_t cublaslt_handle();
// Of the pointer, up to what the library asks about.
uint32_t pointer_alignment(const void* p);
cudaDataType_t cuda_type(Element e);

// Kept as long as the program: as many as it has shapes.
struct ProductPlan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;  // as cuda/matmul.h names them
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
};

struct Alignments {
  uint32_t a, b, c, d;
  auto operator<=>(const Alignments&) const = default;
};

// Sums in float, factors where `factors` says.
cublasLtMatmulDesc_t product_desc(cublasLtPointerMode_t factors);
template <typename Value>
void set_product(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, Value value) {
  cublas_check(cublaslt().desc_set(desc, which, &value, sizeof value), "describing a product");
}
// `rows` is the contiguous dimension.
cublasLtMatrixLayout_t matrix_layout(cudaDataType_t type, int64_t rows, int64_t columns);
// How messages name a product: a call makes no text unless it fails.
struct ProductName {
  int64_t m, n, k;
  const char* operands = "";  // " of quantised operands"
  std::string text() const;
};

// The library's first proposal that adds partial sums in float, so that a result is rounded once
// and the same call gives the same bits.
void choose_algorithm(ProductPlan& plan, const Alignments& alignments, size_t workspace,
                      const ProductName& name);

// A workspace as the library wants it.
void require_workspace(Exec on, const ProductName& name);
struct ProductPointers {
  const void *a, *b;
  const void* c;  // null: nothing is added
  void* d;
  const float* factors;  // on the device; null: 1, 1
};
void start_product(Exec on, const ProductPlan& plan, const ProductPointers& p,
                   const ProductName& name);

}  // namespace assay::gpu
