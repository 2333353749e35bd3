// A temporary folder, removed by the destructor.
#pragma once

#include <stdlib.h>

#include <filesystem>
#include <string>

#include "base/check.h"

namespace assay {

class TempFolder {
 public:
  TempFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "assay-test-XXXXXX").string();
    CHECK(mkdtemp(name.data()) != nullptr, "no folder %s", name.c_str());
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace assay
