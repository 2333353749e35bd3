// The cores that this process may use.
#pragma once

namespace assay {

// Those that the process is bound to (taskset, numactl, a launcher, a container's cpuset), at least
// 1. A limit of CPU time (a cgroup's quota) is not seen.
int usable_cores();

}  // namespace assay
