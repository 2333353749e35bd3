// The cgroups that limit a resource of this process: what a container, a batch system or systemd
// has put it in.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace assay {

struct CgroupFolder {
  int version;       // of its hierarchy: 1 mounts each resource by itself, 2 all of them
  std::string path;  // of the files with its limits
};
// The process's own cgroup and those above it, inner ones first, as far as the mounts show them.
// resource: by the name that version 1 mounts it with, "memory" or "cpu". root: where /proc and
// /sys are, for tests.
std::vector<CgroupFolder> cgroup_folders(const std::string& resource, const std::string& root);

// The same number for all processes of a machine that are in this cgroup.
uint64_t cgroup_identity(const CgroupFolder& folder);

}  // namespace assay
