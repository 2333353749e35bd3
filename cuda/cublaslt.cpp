#include "cuda/cublaslt.h"

#include <dlfcn.h>

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
  const std::string name = "libcublasLt.so." + std::to_string(CUBLAS_VER_MAJOR);
  const SharedLibrary library = open_shared_library(name, toolkit_library_folders());
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
  find(f.create, "cublasLtCreate");
  find(f.matmul, "cublasLtMatmul");
  find(f.desc_create, "cublasLtMatmulDescCreate");
  find(f.desc_set, "cublasLtMatmulDescSetAttribute");
  find(f.layout_create, "cublasLtMatrixLayoutCreate");
  find(f.preference_create, "cublasLtMatmulPreferenceCreate");
  find(f.preference_set, "cublasLtMatmulPreferenceSetAttribute");
  find(f.preference_destroy, "cublasLtMatmulPreferenceDestroy");
  find(f.heuristic, "cublasLtMatmulAlgoGetHeuristic");
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
