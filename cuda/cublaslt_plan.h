// cuBLASLt for the products of cuda/matmul.h and cuda/scaled_matmul.h: descriptors, and an
// algorithm per product. Private to the files of the device layer.
//
// The library is column-major: row-major d (m, n) is its D (n, m), and d = a b is its D = A B with
// our b as its A and our a as its B, as they are in memory.
#pragma once

#include <cublasLt.h>

#include <cstdint>
#include <string>
#include <vector>

#include "cuda/cublaslt.h"
#include "cuda/exec.h"
#include "cuda/product_choice.h"

namespace assay::gpu {

// UserError with the library's message, unless `status` is success. `doing` completes "cuBLASLt
// failed while ...".
void cublas_check(cublasStatus_t status, const std::string& doing);
cublasLtHandle_t cublaslt_handle();
// The alignment of p in bytes, at most 256.
uint32_t pointer_alignment(const void* p);
inline ProductKey::Added added_of(const void* c, const void* d) {
  return c == nullptr ? ProductKey::Added::kNothing
         : c == d     ? ProductKey::Added::kInPlace
                      : ProductKey::Added::kOther;
}

// What a product is, to the library.
class ProductDescription {
 public:
  // p: of a call, for its scales.
  ProductDescription(const ProductKey& key, const ProductOperands& p);
  ~ProductDescription();
  ProductDescription(const ProductDescription&) = delete;
  ProductDescription& operator=(const ProductDescription&) = delete;

  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;  // named as in cuda/matmul.h
};

// An algorithm that is ready to run a product.
struct ReadyAlgorithm {
  cublasLtMatmulAlgo_t algorithm;
  ProductAlgorithm attributes;
  size_t workspace;
};
// The library's first `most` proposals that add partial sums in float, so that a result is rounded
// once and the same call gives the same bits; at most `workspace` bytes each.
std::vector<ReadyAlgorithm> propose(const ProductDescription& product, const ProductKey& key,
                                    size_t workspace, int most);
// The first of them. UserError if there is none.
ReadyAlgorithm first_proposal(const ProductDescription& product, const ProductKey& key,
                              size_t workspace);
// The algorithm with these attributes. UserError if the library refuses it for the product, or if
// it needs more than `workspace` bytes.
ReadyAlgorithm rebuild(const ProductDescription& product, const ProductKey& key,
                       const ProductAlgorithm& attributes, size_t workspace);

// Queues a product on the stream of on.gpu.
void start_product(Exec on, const ProductDescription& product, const ReadyAlgorithm& by,
                   const ProductKey& key, const ProductOperands& p);
// The same by the algorithm that on.gpu->products has for it, else by the library's first proposal.
// Descriptors and algorithm are made at the first call with a key and a size of the workspace, and
// kept. UserError if there is no algorithm.
void run_product(Exec on, const ProductKey& key, const ProductOperands& p);

}  // namespace assay::gpu
