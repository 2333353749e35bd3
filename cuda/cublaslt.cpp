#include "cuda/cublaslt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <type_traits>

#include "base/check.h"
#include "cuda/shared_library.h"

namespace assay::gpu {

namespace {

struct Loaded {
  CublasLt functions = {};
  std::string problem;
};

Loaded load() {
  const char* const given = std::getenv("ASSAY_CUBLASLT_LIBRARY");
  const bool is_given = given != nullptr && *given != '\0';
  const std::string name = is_given ? given : "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  const SharedLibrary library =
      open_shared_library(name, is_given ? std::vector<std::string>() : toolkit_library_folders());
  Loaded loaded;
  if (library.handle == nullptr) {
    loaded.problem = name + " cannot be loaded (" + library.problem + ")";
    return loaded;
  }
  const auto find = [&](auto& function, const char* symbol) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(
        dlsym(library.handle, symbol));
    if (function == nullptr && loaded.problem.empty()) {
      loaded.problem = name + " has no " + symbol;
    }
  };
  CublasLt& f = loaded.functions;
  find(f.version, "cublasLtGetVersion");
  find(f.create, "cublasLtCreate");
  find(f.matmul, "cublasLtMatmul");
  find(f.desc_create, "cublasLtMatmulDescCreate");
  find(f.desc_set, "cublasLtMatmulDescSetAttribute");
  find(f.desc_destroy, "cublasLtMatmulDescDestroy");
  find(f.layout_create, "cublasLtMatrixLayoutCreate");
  find(f.layout_destroy, "cublasLtMatrixLayoutDestroy");
  find(f.preference_create, "cublasLtMatmulPreferenceCreate");
  find(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(f.algorithm_init, "cublasLtMatmulAlgoInit");
  find(f.algorithm_check, "cublasLtMatmulAlgoCheck");
  find(f.algorithm_get, "cublasLtMatmulAlgoConfigGetAttribute");
  find(f.algorithm_set, "cublasLtMatmulAlgoConfigSetAttribute");
  find(f.status_string, "cublasLtGetStatusString");
  return loaded;
}

const Loaded& loaded() {
  static const Loaded once = load();
  return once;
}

}  // namespace

const std::string& cublaslt_problem() {
  return loaded().problem;
}

const CublasLt& cublaslt() {
  CHECK(loaded().problem.empty(), "%s", loaded().problem.c_str());
  return loaded().functions;
}

}  // namespace assay::gpu
