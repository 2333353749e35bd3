#include "base/cgroup.h"

#include <sys/stat.h>

#include <fstream>
#include <sstream>

namespace assay {
namespace {

// Where a hierarchy of cgroups is mounted, and which cgroup is its top there: in a container that
// may be the container's own.
struct Mount {
  int version;
  std::string top, folder;
};

bool names(const std::string& list, const std::string& resource) {
  return ("," + list + ",").find("," + resource + ",") != std::string::npos;
}

// Lines "36 35 0:29 TOP FOLDER rw,nosuid shared:9 - TYPE source rw,memory".
std::vector<Mount> mounts(const std::string& resource, const std::string& root) {
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
    if (type == "cgroup" && names(options, resource)) mount.version = 1;
    if (mount.version > 0) found.push_back(mount);
  }
  return found;
}

// This process's cgroup in the hierarchy of that version, from lines "4:cpu,memory:/a/b", in
// version 2 "0::/a/b"; "" if it has none.
std::string cgroup_of_process(const std::string& resource, const std::string& root, int version) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string resources = line.substr(first + 1, second - first - 1);
    if (version == 2 ? resources.empty() : names(resources, resource)) {
      return line.substr(second + 1);
    }
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

}  // namespace

std::vector<CgroupFolder> cgroup_folders(const std::string& resource, const std::string& root) {
  std::vector<CgroupFolder> all;
  for (const Mount& mount : mounts(resource, root)) {
    const std::string cgroup = cgroup_of_process(resource, root, mount.version);
    for (const std::string& folder : folders_of(mount, cgroup)) {
      all.push_back({.version = mount.version, .path = root + folder});
    }
  }
  return all;
}

uint64_t cgroup_identity(const CgroupFolder& folder) {
  struct stat info = {};
  stat(folder.path.c_str(), &info);
  return (static_cast<uint64_t>(info.st_dev) << 48) ^ static_cast<uint64_t>(info.st_ino);
}

}  // namespace assay
