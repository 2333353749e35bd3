#include "tools/assay/print_warning.h"

#include <cstdio>

#include "engine/config/paths.h"

namespace assay {

void print_warning(const std::string& what, const std::string& hint) {
  std::fflush(stdout);
  std::fprintf(stderr, "warning: %s\nhint: %s\n", what.c_str(), as_installed(hint).c_str());
}

}  // namespace assay
