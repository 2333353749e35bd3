// The functions of cuBLASLt that the program calls, looked up in the library while it runs
// (cuda/shared_library.h): nothing is linked with it. Private to the files of the device layer.
#pragma once

#include <cublasLt.h>

#include <string>

namespace assay::gpu {

struct CublasLt {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) desc_create;
  decltype(&cublasLtMatmulDescSetAttribute) desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtGetStatusString) status_string;
};

// Why the library cannot be used here; "": it can.
const std::string& cublaslt_problem();
// Where there is none: a device is not opened with one (require_usable).
const CublasLt& cublaslt();

}  // namespace assay::gpu
