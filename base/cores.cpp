#include "base/cores.h"

#include <omp.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>

#include "base/cgroup.h"
#include "base/hash.h"
#include "base/math.h"

namespace assay {

namespace {

// Not the mask of this thread: OpenMP may have bound it to one core (OMP_PROC_BIND).
int64_t bound_cores() {
  return std::max(1, omp_get_num_procs());
}

uint64_t mask_of_thread() {
  // The kernel refuses room for fewer CPUs than it may have.
  constexpr size_t kMostWords = 1 << 12;
  for (size_t words = 16; words <= kMostWords; words *= 2) {
    std::vector<uint64_t> mask(words);
    const long bytes = syscall(SYS_sched_getaffinity, 0, words * sizeof mask[0], mask.data());
    if (bytes < 0) continue;
    mask.resize(size_t(bytes) / sizeof mask[0]);
    return hash_words(mask.data(), mask.size());
  }
  return 0;
}

// The CPU time of a cgroup in each period, both in microseconds; 0 where it has no limit, which
// version 2 calls "max" and version 1 -1.
int64_t quota_cores(const CgroupFolder& folder) {
  int64_t quota = 0, period = 0;
  if (folder.version == 2) {
    std::ifstream(folder.path + "/cpu.max") >> quota >> period;
  } else {
    std::ifstream(folder.path + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(folder.path + "/cpu.cfs_period_us") >> period;
  }
  return quota > 0 && period > 0 ? ceil_div(quota, period) : 0;
}

}  // namespace

int usable_cores(const std::string& root) {
  const int64_t bound = bound_cores(), quota = cpu_quota(root).cores;
  return int(quota > 0 ? std::min(bound, quota) : bound);
}

CpuQuota cpu_quota(const std::string& root) {
  CpuQuota least;
  for (const CgroupFolder& folder : cgroup_folders("cpu", root)) {
    const int64_t cores = quota_cores(folder);
    // Of equal ones the outer, which more processes share.
    if (cores == 0 || (least.cores > 0 && cores > least.cores)) continue;
    least = {.cores = cores, .cgroup = cgroup_identity(folder)};
  }
  return least;
}

CoresOfProcess cores_of_process(int64_t machine) {
  return {
      .machine = machine, .mask = mask_of_thread(), .bound = bound_cores(), .quota = cpu_quota()};
}

int64_t share_of_cores(const std::vector<CoresOfProcess>& all, size_t process) {
  const CoresOfProcess& own = all[process];
  const auto sharers = [&](auto shares) {
    return std::count_if(all.begin(), all.end(), [&](const CoresOfProcess& other) {
      return other.machine == own.machine && shares(other);
    });
  };
  int64_t cores =
      own.bound / sharers([&](const CoresOfProcess& other) { return other.mask == own.mask; });
  if (own.quota.cores > 0) {
    const auto same = [&](const CoresOfProcess& other) {
      return other.quota.cgroup == own.quota.cgroup;
    };
    cores = std::min(cores, own.quota.cores / sharers(same));
  }
  return std::max<int64_t>(1, cores);
}

}  // namespace assay
