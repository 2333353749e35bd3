#include "cuda/cublaslt_plan.h"

#include <algorithm>

#include "base/check.h"
#include "cuda/context.h"
#include "cuda/cuda_error.h"

namespace assay::gpu {

namespace {

cublasLtHandle_t make_handle() {
  cublasLtHandle_t made = nullptr;
  cublas_check(cublaslt().create(&made), "starting");
  return made;
}

}  // namespace

void cublas_check(cublasStatus_t status, const char* doing) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw UserError(
      strprintf("cuBLASLt failed while %s: %s", doing, cublaslt().status_string(status)),
      "set ASSAY_SYNC_LAUNCHES=1 to name a kernel that failed earlier; --device cpu works "
      "meanwhile");
}

cublasLtHandle_t cublaslt_handle() {
  static const cublasLtHandle_t kept = make_handle();
  return kept;
}

uint32_t pointer_alignment(const void* p) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return uint32_t(std::min<uintptr_t>(256, address & (~address + 1)));
}

cudaDataType_t cuda_type(Element e) {
  return e == Element::kFloat ? CUDA_R_32F : CUDA_R_16BF;
}

cublasLtMatmulDesc_t product_desc(cublasLtPointerMode_t factors) {
  cublasLtMatmulDesc_t made = nullptr;
  cublas_check(cublaslt().desc_create(&made, CUBLAS_COMPUTE_32F, CUDA_R_32F),
               "describing a product");
  set_product(made, CUBLASLT_MATMUL_DESC_POINTER_MODE, factors);
  return made;
}

cublasLtMatrixLayout_t matrix_layout(cudaDataType_t type, int64_t rows, int64_t columns) {
  cublasLtMatrixLayout_t made = nullptr;
  cublas_check(cublaslt().layout_create(&made, type, uint64_t(rows), uint64_t(columns), rows),
               "describing a matrix");
  return made;
}

std::string ProductName::text() const {
  return strprintf("(%ld, %ld, %ld)%s", long(m), long(n), long(k), operands);
}

void choose_algorithm(ProductPlan& plan, const Alignments& alignments, size_t workspace,
                      const ProductName& name) {
  const CublasLt& lib = cublaslt();
  const std::string doing = "choosing an algorithm for " + name.text();
  cublasLtMatmulPreference_t preference = nullptr;
  cublas_check(lib.preference_create(&preference), doing.c_str());
  const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t which, auto value) {
    cublas_check(lib.preference_set(preference, which, &value, sizeof value), doing.c_str());
  };
  prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(workspace));
  prefer(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
         uint32_t(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.b);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.a);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.c);
  prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.d);
  cublasLtMatmulHeuristicResult_t proposal = {};
  int proposals = 0;
  cublas_check(lib.heuristic(cublaslt_handle(), plan.desc, plan.b, plan.a, plan.d, plan.d,
                             preference, 1, &proposal, &proposals),
               doing.c_str());
  lib.preference_destroy(preference);
  if (proposals == 0) {
    throw UserError("cuBLASLt has no algorithm for " + name.text(),
                    "set CUBLASLT_LOG_LEVEL=5 CUBLASLT_LOG_FILE=cublaslt.log to log the reason");
  }
  plan.algorithm = proposal.algo;
  plan.workspace = proposal.workspaceSize;
}

void require_workspace(Exec on, const ProductName& name) {
  CHECK(pointer_alignment(on.workspace.data) == 256,
        "matmul %s: workspace at %p, cuBLASLt needs a multiple of 256 bytes", name.text().c_str(),
        static_cast<const void*>(on.workspace.data));
}

void start_product(Exec on, const ProductPlan& plan, const ProductPointers& p,
                   const ProductName& name) {
  const float host_factors[] = {1, p.c ? 1.0f : 0.0f};
  const float* const factors = p.factors ? p.factors : host_factors;
  remember_kernel("matmul (cuBLASLt)");
  const cublasStatus_t started = cublaslt().matmul(
      cublaslt_handle(), plan.desc, factors, p.b, plan.b, p.a, plan.a, factors + 1, p.c ? p.c : p.d,
      plan.d, p.d, plan.d, &plan.algorithm, on.workspace.data, plan.workspace,
      static_cast<cudaStream_t>(on.gpu->stream));
  if (started == CUBLAS_STATUS_SUCCESS) return;
  cublas_check(started, ("starting a product " + name.text()).c_str());
}

}  // namespace assay::gpu
