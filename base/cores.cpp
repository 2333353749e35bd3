#include "base/cores.h"

#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/hash.h"

namespace assay {

// Not the mask of this thread: OpenMP may have bound it to one core (OMP_PROC_BIND).
int usable_cores() {
  return std::max(1, omp_get_num_procs());
}

CoreMask core_mask(int64_t machine) {
  // The kernel refuses room for fewer CPUs than it may have.
  constexpr size_t kMostWords = 1 << 12;
  for (size_t words = 16; words <= kMostWords; words *= 2) {
    std::vector<uint64_t> mask(words);
    const long bytes = syscall(SYS_sched_getaffinity, 0, words * sizeof mask[0], mask.data());
    if (bytes < 0) continue;
    mask.resize(size_t(bytes) / sizeof mask[0]);
    return {.machine = machine, .cores = hash_words(mask.data(), mask.size())};
  }
  return {.machine = machine, .cores = 0};
}

int64_t processes_on_cores_of(const std::vector<CoreMask>& all, size_t process) {
  return std::count_if(all.begin(), all.end(), [&](const CoreMask& other) {
    return other.machine == all[process].machine && other.cores == all[process].cores;
  });
}

}  // namespace assay
