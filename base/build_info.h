// The commit, compiler and flags this program was built from.
#pragma once

#include <string>

namespace assay {

struct BuildInfo {
  std::string version;
  std::string commit;  // "unknown" outside a git checkout
  bool dirty = false;
  std::string compiler;
  std::string flags;
};

BuildInfo build_info();  // written at build time by cmake/build_info.cmake

}  // namespace assay
