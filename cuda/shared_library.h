// A shared library opened at run time, so that the program starts and works where it is absent.
#pragma once

#include <string>
#include <vector>

namespace assay::gpu {

struct SharedLibrary {
  void* handle = nullptr;  // for dlsym, never closed; null if the library could not be loaded
  std::string problem;     // the loader's message in that case
};
// Opens `name` where the system's loader finds it (LD_LIBRARY_PATH, the program's own library
// folder, ld.so.cache), else in the first of `folders` that has it.
SharedLibrary open_shared_library(const std::string& name, const std::vector<std::string>& folders);

// Folders of CUDA toolkits, which the loader may not search: $CUDA_HOME/lib64, $CUDA_PATH/lib64,
// /usr/local/cuda/lib64.
std::vector<std::string> toolkit_library_folders();

}  // namespace assay::gpu
