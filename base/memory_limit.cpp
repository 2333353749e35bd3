#include "base/memory_limit.h"

#include <unistd.h>

#include <fstream>

#include "base/cgroup.h"

namespace assay {

size_t machine_memory_bytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit least{.bytes = machine_memory_bytes()};
  for (const CgroupFolder& folder : cgroup_folders("memory", root)) {
    const char* const name = folder.version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
    std::ifstream file(folder.path + name);
    size_t bytes = 0;
    if (!(file >> bytes)) continue;  // "max": no limit
    // Of equal ones the outer, which more processes share.
    if (bytes > least.bytes || (least.cgroup == 0 && bytes == least.bytes)) continue;
    least = {.bytes = bytes, .cgroup = cgroup_identity(folder)};
  }
  return least;
}

}  // namespace assay
