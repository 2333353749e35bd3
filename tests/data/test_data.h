// Data outside the repository: in ../shared/data, or where ASSAY_TEST_DATA points.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

namespace assay {

// The path of a test file; if absent, prints that the test is not run and returns "".
inline std::string test_data(const std::string& name) {
  const char* folder = std::getenv("ASSAY_TEST_DATA");
  const std::string path = std::string(folder != nullptr ? folder : "../shared/data") + "/" + name;
  if (std::filesystem::exists(path)) return path;
  std::printf("not run: data absent (%s)\n", path.c_str());
  return "";
}

}  // namespace assay
