#include "lab/receipt/locate_data.h"

#include <filesystem>
#include <fstream>

#include "data/sha256.h"
#include "lab/runs/recorded_data.h"

namespace assay {
namespace {

namespace fs = std::filesystem;

void add_below(const std::string& folder, const std::string& name,
               std::vector<std::string>& files) {
  std::error_code stop, ignored;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator at(folder, options, stop), end; !stop && at != end;
       at.increment(stop)) {
    if (at->path().filename() == name && at->is_regular_file(ignored))
      files.push_back(at->path().string());
  }
}

void add_former_places(const std::string& run, const std::string& name,
                       std::vector<std::string>& files) {
  std::error_code ignored;
  for (const auto& [path, hash] : recorded_data_of(run)) {
    if (fs::path(path).filename() == name && fs::is_regular_file(path, ignored))
      files.push_back(path);
  }
}

}  // namespace

std::optional<FoundData> find_data(const std::string& name, const std::string& sha256,
                                   const std::vector<std::string>& folders,
                                   const std::string& run) {
  std::vector<std::string> files;
  for (const std::string& folder : folders) add_below(folder, name, files);
  add_former_places(run, name, files);
  std::optional<FoundData> first;
  for (const std::string& path : files) {
    const FoundData found{.path = path, .sha256 = sha256_file(path)};
    if (found.sha256 == sha256) return found;
    if (!first) first = found;
  }
  return first;
}

}  // namespace assay
