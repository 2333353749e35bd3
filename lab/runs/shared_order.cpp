#include "lab/runs/shared_order.h"

#include <algorithm>
#include <vector>

namespace assay {
namespace {

bool has_one_order(const SeedGroup& group) {
  const DataConfig& data = group.config().data;
  return !data.shuffle && !data.mixture;
}

}  // namespace

std::string shared_order_text(std::span<const SeedGroup> groups) {
  std::vector<std::string> names;
  bool all = true;
  for (const SeedGroup& group : groups) {
    if (group.runs.size() < 2) continue;
    if (!has_one_order(group)) {
      all = false;
    } else if (std::find(names.begin(), names.end(), group.name) == names.end()) {
      names.push_back(group.name);
    }
  }
  if (names.empty()) return "";
  std::string of;
  for (const std::string& name : names) of += (of.empty() ? " of " : ", ") + name;
  return "all seeds" + (all ? "" : of) +
         " saw the training data in one order (data.shuffle: false), so their spread leaves "
         "that of the order out";
}

}  // namespace assay
