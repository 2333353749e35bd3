#include "cuda/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>

namespace assay::gpu {

SharedLibrary open_shared_library(const std::string& name,
                                  const std::vector<std::string>& folders) {
  SharedLibrary library;
  const auto opens = [&](const std::string& path) {
    library.handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    return library.handle != nullptr;
  };
  if (opens(name)) return library;
  library.problem = dlerror();
  for (const std::string& folder : folders) {
    if (opens(folder + "/" + name)) return {.handle = library.handle, .problem = ""};
  }
  return library;
}

std::vector<std::string> toolkit_library_folders() {
  std::vector<std::string> folders;
  for (const char* const variable : {"CUDA_HOME", "CUDA_PATH"}) {
    const char* const toolkit = std::getenv(variable);
    if (toolkit != nullptr && *toolkit != '\0') folders.push_back(std::string(toolkit) + "/lib64");
  }
  folders.emplace_back("/usr/local/cuda/lib64");
  return folders;
}

}  // namespace assay::gpu
