// The products of cuda/matmul.h by cuBLASLt, opened at run time (cuda/cublaslt.h).
//
// A product's descriptors and algorithm are made at the first call of its shape, types and alignments, and kept. The
// algorithm is the library's first proposal; schemes that add partial sums in the output's type are left out, so that a bf16
// product is rounded once, and the same call gives the same bits.
#include <cublasLt.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <tuple>

#include "base/check.h"
#include "cuda/context.h"
#include "cuda/cublaslt.h"
#include "cuda/cuda_error.h"
#include "cuda/matmul.h"

namespace assay::gpu {

namespace {

void cublas_check(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw UserError(
      strprintf("cuBLASLt failed while %s: %s", doing, cublaslt().status_string(status)),
      "ASSAY_SYNC_LAUNCHES=1 names a kernel that failed before; --device cpu works meanwhile");
}

cublasLtHandle_t make_handle() {
  cublasLtHandle_t made = nullptr;
  cublas_check(cublaslt().create(&made), "starting");
  return made;
}

cublasLtHandle_t handle() {
  static const cublasLtHandle_t kept = make_handle();
  return kept;
}

// Of the pointer, up to what the library asks about.
uint32_t alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return uint32_t(std::min<uintptr_t>(256, address & (~address + 1)));
}

cudaDataType_t data_type(Element e) {
  return e == Element::kFloat ? CUDA_R_32F : CUDA_R_16BF;
}

struct Key {
  int64_t m, n, k;
  Matmul::Form a_form, b_form;
  Element operands, result;
  cublasLtPointerMode_t factors;
  uint32_t align_a, align_b, align_d, align_c;
  size_t workspace;

  auto all() const {
    return std::tie(m, n, k, a_form, b_form, operands, result, factors, align_a, align_b, align_d,
                    align_c, workspace);
  }
  bool operator<(const Key& other) const { return all() < other.all(); }
};

// Kept as long as the program: as many as it has shapes.
struct Plan {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, d = nullptr;
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace = 0;
};

// The library counts columns first: row-major d (m, n) is its D (n, m), and d = a b its D = B A with the operands as they
// lie in memory. `rows` is the contiguous dimension.
cublasLtMatrixLayout_t layout(Element type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  cublas_check(
      cublaslt().layout_create(&made, data_type(type), uint64_t(rows), uint64_t(columns), rows),
      "describing a matrix");
  return made;
}

Plan make_plan(const Key& p) {
  const CublasLt& lib = cublaslt();
  Plan plan;
  cublas_check(lib.desc_create(&plan.desc, CUBLAS_COMPUTE_32F, CUDA_R_32F), "describing a product");
  const auto set = [&](cublasLtMatmulDescAttributes_t which, auto value) {
    cublas_check(lib.desc_set(plan.desc, which, &value, sizeof value), "describing a product");
  };
  const auto operation = [](Matmul::Form form) {
    return form == Matmul::Form::kPlain ? CUBLAS_OP_N : CUBLAS_OP_T;
  };
  set(CUBLASLT_MATMUL_DESC_TRANSA, operation(p.b_form));
  set(CUBLASLT_MATMUL_DESC_TRANSB, operation(p.a_form));
  set(CUBLASLT_MATMUL_DESC_POINTER_MODE, p.factors);
  const bool b_plain = p.b_form == Matmul::Form::kPlain, a_plain = p.a_form == Matmul::Form::kPlain;
  plan.b = layout(p.operands, b_plain ? p.n : p.k, b_plain ? p.k : p.n);
  plan.a = layout(p.operands, a_plain ? p.k : p.m, a_plain ? p.m : p.k);
  plan.d = layout(p.result, p.n, p.m);

  cublasLtMatmulPreference_t preference = nullptr;
  cublas_check(lib.preference_create(&preference), "choosing an algorithm");
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    cublas_check(lib.preference_set(preference, which, &value, sizeof value),
                 "choosing an algorithm");
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(p.workspace));
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, p.align_b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, p.align_a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, p.align_c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, p.align_d);
  cublasLtMatmulHeuristicResult_t proposal = {};
  int proposals = 0;
  cublas_check(
      lib.heuristic(handle(), plan.desc, plan.b, plan.a, plan.d, plan.d, preference, 1, &proposal,
                    &proposals),
      strprintf("choosing an algorithm for (%ld, %ld, %ld)", long(p.m), long(p.n), long(p.k))
          .c_str());
  lib.preference_destroy(preference);
  CHECK(proposals > 0, "cuBLASLt has no algorithm for (%ld, %ld, %ld)", long(p.m), long(p.n),
        long(p.k));
  plan.algorithm = proposal.algo;
  plan.workspace = proposal.workspaceSize;
  return plan;
}

const Plan& plan_for(const Key& key) {
  static std::mutex mutex;
  static std::map<Key, Plan> plans;
  const std::lock_guard lock(mutex);
  auto found = plans.find(key);
  if (found == plans.end()) found = plans.emplace(key, make_plan(key)).first;
  return found->second;
}

// A sum of no terms.
void empty_product(cudaStream_t stream, const Matmul& p) {
  const size_t bytes = size_t(p.m) * size_t(p.n) * (p.result == Element::kFloat ? 4 : 2);
  if (p.c == p.d) return;
  cuda_check(p.c ? cudaMemcpyAsync(p.d, p.c, bytes, cudaMemcpyDefault, stream)
                 : cudaMemsetAsync(p.d, 0, bytes, stream),
             "a product of no terms");
}

}  // namespace

void matmul(Exec on, const Matmul& p) {
  CHECK(on.gpu != nullptr && on.gpu->stream != nullptr, "matmul (%ld, %ld, %ld): no stream",
        long(p.m), long(p.n), long(p.k));
  if (p.m == 0 || p.n == 0) return;
  const auto stream = static_cast<cudaStream_t>(on.gpu->stream);
  if (p.k == 0) return empty_product(stream, p);
  CHECK(alignment(on.workspace.data) == 256,
        "matmul: workspace at %p, cuBLASLt asks for a multiple of 256 bytes",
        static_cast<const void*>(on.workspace.data));
  const CublasLt& lib = cublaslt();
  const void* const c = p.c ? p.c : p.d;
  const Plan& plan =
      plan_for({.m = p.m,
                .n = p.n,
                .k = p.k,
                .a_form = p.a_form,
                .b_form = p.b_form,
                .operands = p.operands,
                .result = p.result,
                .factors = p.factors ? CUBLASLT_POINTER_MODE_DEVICE : CUBLASLT_POINTER_MODE_HOST,
                .align_a = alignment(p.a),
                .align_b = alignment(p.b),
                .align_d = alignment(p.d),
                .align_c = alignment(c),
                .workspace = on.workspace.bytes()});
  const float host_factors[] = {1, p.c ? 1.0f : 0.0f};
  const float* const factors = p.factors ? p.factors : host_factors;
  remember_kernel("matmul (cuBLASLt)");
  cublas_check(
      lib.matmul(handle(), plan.desc, factors, p.b, plan.b, p.a, plan.a, factors + 1, c, plan.d,
                 p.d, plan.d, &plan.algorithm, on.workspace.data, plan.workspace, stream),
      strprintf("starting a product (%ld, %ld, %ld)", long(p.m), long(p.n), long(p.k)).c_str());
}

}  // namespace assay::gpu
