// The products of cuda/matmul.h by cuBLASLt, opened at run time (cuda/cublaslt.h).
//
// Descriptors and algorithm of a product (cuda/cublaslt_plan.h) are made at the first call with its
// shape, types and alignments, and kept.
#include <map>
#include <mutex>

#include "base/check.h"
#include "cuda/context.h"
#include "cuda/cublaslt_plan.h"
#include "cuda/cuda_error.h"
#include "cuda/matmul.h"

namespace assay::gpu {

namespace {

struct Key {
  int64_t m, n, k;
  Matmul::Form a_form, b_form;
  Element operands, result;
  cublasLtPointerMode_t factors;
  Alignments alignments;
  size_t workspace;

  auto operator<=>(const Key&) const = default;
};

ProductPlan make_plan(const Key& p) {
  ProductPlan plan;
  plan.desc = product_desc(p.factors);
  const auto operation = [](Matmul::Form form) {
    return form == Matmul::Form::kPlain ? CUBLAS_OP_N : CUBLAS_OP_T;
  };
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_TRANSA, operation(p.b_form));
  set_product(plan.desc, CUBLASLT_MATMUL_DESC_TRANSB, operation(p.a_form));
  const bool b_plain = p.b_form == Matmul::Form::kPlain, a_plain = p.a_form == Matmul::Form::kPlain;
  const cudaDataType_t operands = cuda_type(p.operands);
  plan.b = matrix_layout(operands, b_plain ? p.n : p.k, b_plain ? p.k : p.n);
  plan.a = matrix_layout(operands, a_plain ? p.k : p.m, a_plain ? p.m : p.k);
  plan.d = matrix_layout(cuda_type(p.result), p.n, p.m);
  choose_algorithm(plan, p.alignments, p.workspace, {.m = p.m, .n = p.n, .k = p.k});
  return plan;
}

const ProductPlan& plan_for(const Key& key) {
  static std::mutex mutex;
  static std::map<Key, ProductPlan> plans;
  const std::lock_guard lock(mutex);
  auto found = plans.find(key);
  if (found == plans.end()) found = plans.emplace(key, make_plan(key)).first;
  return found->second;
}

// k = 0: d is c, or zero.
void empty_product(cudaStream_t stream, const Matmul& p) {
  const size_t bytes = size_t(p.m) * size_t(p.n) * (p.result == Element::kFloat ? 4 : 2);
  if (p.c == p.d) return;
  cuda_check(p.c ? cudaMemcpyAsync(p.d, p.c, bytes, cudaMemcpyDefault, stream)
                 : cudaMemsetAsync(p.d, 0, bytes, stream),
             "a product of no terms");
}

}  // namespace

void matmul(Exec on, const Matmul& p) {
  const ProductName name{.m = p.m, .n = p.n, .k = p.k};
  CHECK(on.gpu != nullptr && on.gpu->stream != nullptr, "matmul %s: no stream",
        name.text().c_str());
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return empty_product(static_cast<cudaStream_t>(on.gpu->stream), p);
  require_workspace(on, name);
  const void* const c = p.c ? p.c : p.d;
  const ProductPlan& plan =
      plan_for({.m = p.m,
                .n = p.n,
                .k = p.k,
                .a_form = p.a_form,
                .b_form = p.b_form,
                .operands = p.operands,
                .result = p.result,
                .factors = p.factors ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST,
                .alignments = {.a = pointer_alignment(p.a),
                               .b = pointer_alignment(p.b),
                               .c = pointer_alignment(c),
                               .d = pointer_alignment(p.d)},
                .workspace = on.workspace.bytes()});
  start_product(on, plan, {.a = p.a, .b = p.b, .c = p.c, .d = p.d, .factors = p.factors}, name);
}

}  // namespace assay::gpu
