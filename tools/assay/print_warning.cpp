#include "tools/assay/print_warning.h"

#include <cstdio>

namespace assay {

void print_warning(const std::string& what, const std::string& hint) {
  std::fflush(stdout);
  std::fprintf(stderr, "warning: %s\nhint: %s\n", what.c_str(), hint.c_str());
}

}  // namespace assay
