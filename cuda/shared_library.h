// A library opened while the program runs: a program that may use it starts, and works without it,
// where it is absent.
#pragma once

#include <string>
#include <vector>

namespace assay::gpu {

struct SharedLibrary {
  void* handle = nullptr;  // for dlsym; stays open. Null: it could not be loaded
  std::string problem;     // of the system's loader, where it could not
};
// `name` where the system's loader finds it (LD_LIBRARY_PATH, the program's own library folder,
// ld.so.cache), else in the first of `folders` that has it.
SharedLibrary open_shared_library(const std::string& name, const std::vector<std::string>& folders);

// Where a CUDA toolkit keeps its libraries without telling the loader: $CUDA_HOME/lib64,
// $CUDA_PATH/lib64, /usr/local/cuda/lib64.
std::vector<std::string> toolkit_library_folders();

}  // namespace assay::gpu
