#include "base/memory_limit.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

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

size_t available_memory_bytes(const std::string& root) {
  const size_t limit = memory_limit(root).bytes;
  // Lines "MemAvailable:   12345 kB".
  std::ifstream file(root + "/proc/meminfo");
  std::string name;
  for (size_t kib = 0; file >> name >> kib;) {
    if (name == "MemAvailable:") return std::min(limit, kib * 1024);
    file.ignore(std::numeric_limits<std::streamsize>::max(), '\n');
  }
  return limit;
}

}  // namespace assay
