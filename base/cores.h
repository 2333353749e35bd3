// The cores that this process may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace assay {

// Those that the process is bound to (taskset, numactl, a launcher, a container's cpuset), or fewer
// where a cgroup limits its CPU time; at least 1. root: where /proc and /sys are, for tests.
int usable_cores(const std::string& root = "");

// The CPU time that a process and others together may use, as a number of cores, rounded up.
struct CpuQuota {
  int64_t cores = 0;  // 0: there is no limit
  // The cgroup that they are together in (base/cgroup.h).
  uint64_t cgroup = 0;
};
// The least that holds for this process.
CpuQuota cpu_quota(const std::string& root = "");

// What a process may use of the cores of a machine, which has any number of its own.
struct CoresOfProcess {
  int64_t machine;
  // Equal masks of cores have equal numbers. Of this thread: where OpenMP has bound that
  // (OMP_PROC_BIND), its place stands for all places.
  uint64_t mask;
  int64_t bound;  // cores of the mask
  CpuQuota quota;
};
CoresOfProcess cores_of_process(int64_t machine);
// The cores for one of these processes, at least 1: an equal share of its mask with those that are
// bound to the same cores, and of its quota with those of the same cgroup.
int64_t share_of_cores(const std::vector<CoresOfProcess>& all, size_t process);

}  // namespace assay
