#include "base/memory_limit.h"

#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <vector>

namespace assay {
namespace {

// Where a hierarchy of cgroups that limit memory is mounted, and which cgroup is its top there: in
// a container that may be the container's own. Version 1 mounts memory by itself, 2 all resources.
struct Mount {
  int version;
  std::string top, folder;
};

bool names_memory(const std::string& list) {
  return ("," + list + ",").find(",memory,") != std::string::npos;
}

// Lines "36 35 0:29 TOP FOLDER rw,nosuid shared:9 - TYPE source rw,memory".
std::vector<Mount> mounts(const std::string& root) {
  std::vector<Mount> found;
  std::ifstream file(root + "/proc/self/mountinfo");
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string skipped, type, options;
    Mount mount{.version = 0, .top = "", .folder = ""};
    words >> skipped >> skipped >> skipped >> mount.top >> mount.folder;
    while (words >> skipped && skipped != "-") {
    }
    words >> type >> skipped >> options;
    if (type == "cgroup2") mount.version = 2;
    if (type == "cgroup" && names_memory(options)) mount.version = 1;
    if (mount.version > 0) found.push_back(mount);
  }
  return found;
}

// This process's cgroup in the hierarchy of that version, from lines "4:cpu,memory:/a/b", in
// version 2 "0::/a/b"; "" if it has none.
std::string cgroup_of_process(const std::string& root, int version) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string resources = line.substr(first + 1, second - first - 1);
    if (version == 2 ? resources.empty() : names_memory(resources)) return line.substr(second + 1);
  }
  return "";
}

// The folders of a cgroup and those above it, as far as the mount shows them; the mount's own if
// the name is one of elsewhere.
std::vector<std::string> folders_of(const Mount& mount, std::string cgroup) {
  const std::string above = mount.top == "/" ? "" : mount.top;
  const bool is_below = cgroup.starts_with(above + "/") && cgroup.find("/..") == std::string::npos;
  cgroup = is_below ? cgroup.substr(above.size()) : "";
  std::vector<std::string> folders;
  for (; cgroup.size() > 1; cgroup.resize(cgroup.rfind('/'))) {
    folders.push_back(mount.folder + cgroup);
  }
  folders.push_back(mount.folder);
  return folders;
}

uint64_t identity(const std::string& folder) {
  struct stat info = {};
  stat(folder.c_str(), &info);
  return (static_cast<uint64_t>(info.st_dev) << 48) ^ static_cast<uint64_t>(info.st_ino);
}

}  // namespace

size_t machine_memory_bytes() {
  return static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
}

MemoryLimit memory_limit(const std::string& root) {
  MemoryLimit least{.bytes = machine_memory_bytes()};
  for (const Mount& mount : mounts(root)) {
    const char* const name = mount.version == 2 ? "/memory.max" : "/memory.limit_in_bytes";
    for (const std::string& folder : folders_of(mount, cgroup_of_process(root, mount.version))) {
      std::ifstream file(root + folder + name);
      size_t bytes = 0;
      if (!(file >> bytes)) continue;  // "max": no limit
      // Of equal ones the outer, which more processes share.
      if (bytes > least.bytes || (least.cgroup == 0 && bytes == least.bytes)) continue;
      least = {.bytes = bytes, .cgroup = identity(root + folder)};
    }
  }
  return least;
}

}  // namespace assay
