#include "lab/runs/run_labels.h"

#include <map>
#include <set>

#include "base/check.h"
#include "engine/run/run_dir.h"

namespace assay {

namespace fs = std::filesystem;

std::vector<std::string> distinct_labels(const std::vector<fs::path>& paths) {
  std::vector<fs::path> left;
  std::vector<std::string> labels;
  for (const fs::path& path : paths) {
    labels.push_back(path.filename());
    left.push_back(path.parent_path());
  }
  for (bool clash = true; clash;) {
    std::map<std::string, int> count;
    for (const std::string& label : labels) ++count[label];
    clash = false;
    for (size_t i = 0; i < labels.size(); ++i) {
      if (count[labels[i]] < 2 || !left[i].has_relative_path()) continue;
      labels[i] = left[i].filename().string() + "/" + labels[i];
      left[i] = left[i].parent_path();
      clash = true;
    }
  }
  return labels;
}

std::vector<std::string> run_labels(const std::vector<std::string>& runs) {
  std::vector<fs::path> paths;
  std::set<fs::path> seen;
  for (const std::string& run : runs) {
    fs::path path = fs::weakly_canonical(require_run(run));
    if (!path.has_filename()) path = path.parent_path();
    if (!seen.insert(path).second) {
      throw UserError(run + " is given twice", "give every run once");
    }
    paths.push_back(std::move(path));
  }
  return distinct_labels(paths);
}

}  // namespace assay
