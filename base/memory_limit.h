// The memory that this process may use.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace assay {

// Of this machine.
size_t machine_memory_bytes();

// What the kernel lets a process and others together have.
struct MemoryLimit {
  size_t bytes = 0;
  // The cgroup that they are together in, the same number for all of its processes on a machine; 0:
  // the machine.
  uint64_t cgroup = 0;
};
// The least that holds for this process: of the machine, or of a cgroup that a container, a batch
// system or systemd has put it in. root: where /proc and /sys are, for tests.
MemoryLimit memory_limit(const std::string& root = "");
// What the kernel could give without swapping, by /proc/meminfo, and at most that limit.
size_t available_memory_bytes(const std::string& root = "");

}  // namespace assay
