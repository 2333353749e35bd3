#include "lab/runs/shared_order.h"

#include <algorithm>
#include <vector>

namespace assay {
namespace {

// What they saw in one order.
std::string shared_text(bool plain, bool mixed) {
  if (!mixed) return "the training data";
  return plain ? "the training data (of a mixture, each source's sequences)"
               : "each source's sequences";
}

}  // namespace

std::string shared_order_text(std::span<const SeedGroup> groups) {
  std::vector<std::string> names;
  bool all = true, plain = false, mixed = false;
  for (const SeedGroup& group : groups) {
    if (group.runs.size() < 2) continue;
    const DataConfig& data = group.config().data;
    if (data.shuffle) {
      all = false;
      continue;
    }
    (data.mixture ? mixed : plain) = true;
    if (std::find(names.begin(), names.end(), group.name) == names.end()) {
      names.push_back(group.name);
    }
  }
  if (names.empty()) return "";
  std::string of;
  for (const std::string& name : names) of += (of.empty() ? " of " : ", ") + name;
  return "all seeds" + (all ? "" : of) + " saw " + shared_text(plain, mixed) +
         " in one order (data.shuffle: false), so their spread leaves that of the order out";
}

}  // namespace assay
