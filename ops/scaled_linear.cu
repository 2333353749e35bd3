#include "cuda/scaled_matmul.h"
#include "ops/gpu/product_factors.h"
#include "ops/quantise/gpu_operand.h"
#include "ops/scaled_linear.h"

// A library call, as in ops/linear.cu. Bound by the tensor cores at twice the bf16 rate for 8 bits,
// and by the bytes.

namespace assay::gpu {

namespace {

template <typename Y>
void multiply(Exec on, const ScaledLinear<Y>& a) {
  ScaledMatmul p{.d = a.y.data,
                 .c = a.add.data,
                 .a = code_operand(a.left),
                 .b = code_operand(a.right),
                 .m = a.y.dim[0],
                 .n = a.y.dim[1],
                 .k = a.left.k(),
                 .result = element_of<Y>,
                 .sums = a.sums == CodedSums::kFast ? ScaledMatmul::Sums::kFast
                                                    : ScaledMatmul::Sums::kPromoted};
  ProductScale beside;
  if (scale_beside_blocks(a.left.format)) beside.left = a.left.tensor_scale;
  if (scale_beside_blocks(a.right.format)) beside.right = a.right.tensor_scale;
  if (!beside.empty()) {
    p.factors = place_product_factors(on, beside, p.c ? Adds::kMatrix : Adds::kNothing);
  }
  scaled_matmul(on, p);
}

}  // namespace

void scaled_linear(Exec on, const ScaledLinear<float>& a) {
  multiply(on, a);
}
void scaled_linear(Exec on, const ScaledLinear<bf16>& a) {
  multiply(on, a);
}

}  // namespace assay::gpu
