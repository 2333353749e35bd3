// A pretended /proc and /sys/fs/cgroup.
#pragma once

#include <string>

#include "base/file.h"
#include "tests/data/temp_folder.h"

namespace assay {

class PlantedSystem {
 public:
  PlantedSystem(const std::string& cgroups, const std::string& mounts) {
    write("/proc/self/cgroup", cgroups);
    write("/proc/self/mountinfo",
          "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" + mounts);
  }
  void write(const std::string& path, const std::string& text) const {
    make_folders(folder_ / path.substr(0, path.rfind('/')));
    write_file_atomic(folder_ / path, text);
  }
  const std::string& root() const { return folder_.path(); }

 private:
  TempFolder folder_;
};

// The mount of version 2.
inline constexpr const char* kUnified =
    "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

}  // namespace assay
