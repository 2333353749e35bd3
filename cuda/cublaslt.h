// The cuBLASLt functions that the program calls, looked up at run time (cuda/shared_library.h); the
// program is not linked with the library. ASSAY_CUBLASLT_LIBRARY names another file. Private to the
// files of the device layer.
#pragma once

#include <cublasLt.h>

#include <string>

namespace assay::gpu {

struct CublasLt {
  decltype(&cublasLtGetVersion) version;
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatmulDescDestroy) desc_destroy;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoInit) algorithm_init;
  decltype(&cublasLtMatmulAlgoCheck) algorithm_check;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algorithm_get;
  decltype(&cublasLtMatmulAlgoConfigSetAttribute) algorithm_set;
  decltype(&cublasLtGetStatusString) status_string;
};

// Why the library cannot be used on this machine; "" if it can.
const std::string& cublaslt_problem();
// Aborts if there is a problem; require_usable() refuses to open a device in that case.
const CublasLt& cublaslt();

}  // namespace assay::gpu
