// The products of cuda/scaled_matmul.h by cuBLASLt. Descriptors and algorithm of a product are made
// at the first call with its shape, formats and alignments, and kept; the addresses of the scales
// are set at every call.
#include <map>
#include <string>

#include "base/check.h"
#include "cuda/context.h"
#include "cuda/cublaslt_plan.h"
#include "cuda/scaled_matmul.h"

#if CUBLAS_VERSION >= 120900
#define ASSAY_SCALED_PRODUCTS 1
#endif

namespace assay::gpu {

#ifdef ASSAY_SCALED_PRODUCTS

namespace {

struct Key {
  int64_t m, n, k;
  CodeFormat a_format, b_format;
  CodeScales a_scales, b_scales;
  Element result;
  ScaledMatmul::Sums sums;
  cublasLtPointerMode_t factors;
  Alignments alignments;
  size_t workspace;

  auto operator<=>(const Key&) const = default;
};

cudaDataType_t code_type(CodeFormat f) {
  return f == CodeFormat::kE4M3   ? CUDA_R_8F_E4M3
         : f == CodeFormat::kE5M2 ? CUDA_R_8F_E5M2
                                  : CUDA_R_4F_E2M1;
}

cublasLtMatmulMatrixScale_t scale_mode(CodeScales s) {
  switch (s) {
    case CodeScales::kTensor:
      return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
    case CodeScales::k1x128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    case CodeScales::k128x128:
      return CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F;
    case CodeScales::k1x32:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC32_UE8M0;
    case CodeScales::k1x16:
      return CUBLASLT_MATMUL_MATRIX_SCALE_VEC16_UE4M3;
  }
  return CUBLASLT_MATMUL_MATRIX_SCALE_SCALAR_32F;
}

// The library's A is b, its B is a.
void point_to_scales(const ProductPlan& plan, const ScaledMatmul& p) {
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, p.b.scales);
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, p.a.scales);
}

ProductPlan make_plan(const ScaledMatmul& p, const Key& key, const ProductName& name) {
  ProductPlan plan;
  plan.desc = product_desc(key.factors);
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, scale_mode(p.b.kind.scales));
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, scale_mode(p.a.kind.scales));
  const int8_t fast = p.sums == ScaledMatmul::Sums::kFast;
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_FAST_ACCUM, fast);
  point_to_scales(plan, p);
  plan.b = matrix_layout(code_type(p.b.kind.format), p.k, p.n);
  plan.a = matrix_layout(code_type(p.a.kind.format), p.k, p.m);
  plan.d = matrix_layout(cuda_type(p.result), p.n, p.m);
  choose_algorithm(plan, key.alignments, key.workspace, name);
  return plan;
}

}  // namespace

void scaled_matmul(Exec on, const ScaledMatmul& p) {
  const ProductName name{.m = p.m, .n = p.n, .k = p.k, .operands = " of quantised operands"};
  CHECK(on.gpu != nullptr && on.gpu->stream != nullptr, "matmul %s: no stream",
        name.text().c_str());
  check_scaled_matmul(p);
  if (p.m == 0 || p.n == 0) return;
  require_workspace(on, name);
  const void* const c = p.c ? p.c : p.d;
  const Key key{.m = p.m,
                .n = p.n,
                .k = p.k,
                .a_format = p.a.kind.format,
                .b_format = p.b.kind.format,
                .a_scales = p.a.kind.scales,
                .b_scales = p.b.kind.scales,
                .result = p.result,
                .sums = p.sums,
                .factors = p.factors ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST,
                .alignments = {.a = pointer_alignment(p.a.codes),
                               .b = pointer_alignment(p.b.codes),
                               .c = pointer_alignment(c),
                               .d = pointer_alignment(p.d)},
                .workspace = on.workspace.bytes()};
  static std::map<Key, ProductPlan> plans;  // without a mutex: a stream has one host thread
  auto found = plans.find(key);
  if (found == plans.end()) found = plans.emplace(key, make_plan(p, key, name)).first;
  point_to_scales(found->second, p);
  start_product(on, found->second,
                {.a = p.a.codes, .b = p.b.codes, .c = p.c, .d = p.d, .factors = p.factors}, name);
}

#else

void scaled_matmul(Exec, const ScaledMatmul&) {
  throw UserError("products of quantised operands need cuBLASLt 12.9 or newer",
                  "build with a newer CUDA toolkit, or set precision.products: decoded");
}

#endif

}  // namespace assay::gpu
