#include "base/cores.h"

#include <omp.h>

#include <algorithm>

namespace assay {

// Not the mask of this thread: OpenMP may have bound it to one core (OMP_PROC_BIND).
int usable_cores() {
  return std::max(1, omp_get_num_procs());
}

CoreMask core_mask(int64_t machine) {
  CoreMask mask{.machine = machine, .cores = {}};
  // Fails on machines with more CPUs than a cpu_set_t has room for: then all masks are empty, and
  // the processes of one machine count as sharing its cores.
  if (sched_getaffinity(0, sizeof mask.cores, &mask.cores) != 0) CPU_ZERO(&mask.cores);
  return mask;
}

int64_t processes_on_cores_of(const std::vector<CoreMask>& all, size_t process) {
  return std::count_if(all.begin(), all.end(), [&](const CoreMask& other) {
    return other.machine == all[process].machine && CPU_EQUAL(&other.cores, &all[process].cores);
  });
}

}  // namespace assay
