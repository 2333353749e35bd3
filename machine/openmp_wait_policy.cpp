#include "machine/openmp_wait_policy.h"

#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

namespace assay {

void ensure_short_spinning(char** argv) {
  const char* name = "OMP_WAIT_POLICY";
  if (getenv(name) != nullptr) return;
  setenv(name, "passive", 1);
  // Two processes on the same two cores lose a tenth of their speed with 3000, a quarter with
  // 10000; docs/decisions/0040.
  setenv("GOMP_SPINCOUNT", "3000", 0);
  std::error_code failed;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", failed);
  if (!failed) execv(self.c_str(), argv);
  // Reached only if the restart failed: the program continues as it is, only slower.
}

}  // namespace assay
