// The cores that this process may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace assay {

// Those that the process is bound to (taskset, numactl, a launcher, a container's cpuset), at least
// 1. A limit of CPU time (a cgroup's quota) is not seen.
int usable_cores();

// Which cores a process is bound to, on which machine (any number of its own). Equal masks have
// equal numbers.
struct CoreMask {
  int64_t machine;
  uint64_t cores;
};
// Of this thread. Where OpenMP has bound that (OMP_PROC_BIND), its place stands for all places.
CoreMask core_mask(int64_t machine);
// How many of the processes have the mask of this one, itself counted: these share its cores.
int64_t processes_on_cores_of(const std::vector<CoreMask>& all, size_t process);

}  // namespace assay
