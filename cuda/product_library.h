// The library of a GPU's dense products, for what chooses among its algorithms. cuda/matmul.h and
// cuda/scaled_matmul.h multiply.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cuda/exec.h"
#include "cuda/product_choice.h"

namespace assay::gpu {

struct ProductProposal {
  ProductAlgorithm algorithm;
  int64_t workspace_bytes;
};
// Queues a product.
using ProductRun = std::function<void(Exec on, const ProductOperands& operands)>;

struct PreparedProduct {
  ProductProposal by;
  ProductRun run;
};

struct ProductLibrary {
  int64_t (*version)();  // cuBLASLt's: 130100 is 13.1.0
  // The product as it is without a choice: by the library's first proposal itself, not made anew.
  PreparedProduct (*first)(Exec on, const ProductKey& key, const ProductOperands& call);
  // At most `most` proposals for the product of this call that add partial sums in float, fit in
  // on.workspace and can be made anew from their attributes; in the library's order. Empty: none.
  std::vector<ProductProposal> (*proposals)(Exec on, const ProductKey& key,
                                            const ProductOperands& call, int most);
  // The product by that algorithm. UserError if the library refuses it.
  ProductRun (*prepare)(Exec on, const ProductKey& key, const ProductOperands& call,
                        const ProductAlgorithm& algorithm);
};

// Null where products have one way only: in the SIMT emulator.
const ProductLibrary* product_library();

// Why the library has no products of quantised operands (cuda/scaled_matmul.h): it is older than
// the one that the program was built with. "" if it has; library may be null.
std::string scaled_products_problem(const ProductLibrary* library);

}  // namespace assay::gpu
