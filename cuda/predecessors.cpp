#include "cuda/predecessors.h"

#include <cstdlib>
#include <sstream>
#include <string>

#include "base/check.h"
#include "cuda/predecessors_text.h"

namespace assay::gpu {

namespace {

constexpr const char* kVariable = "ASSAY_GPU_PREDECESSORS";

Predecessors all_of_them() {
  Predecessors all;
  for (const auto& n : kPredecessorNames) all.add(n.which);
  return all;
}

void add_named(Predecessors& to, const std::string& name) {
  for (const auto& n : kPredecessorNames) {
    if (name == n.name) return to.add(n.which);
  }
  throw UserError(strprintf("%s names \"%s\"", kVariable, name.c_str()),
                  "it takes all, or some of " + names_of(all_of_them()));
}

}  // namespace

Predecessors predecessors_by_environment() {
  const char* const wanted = std::getenv(kVariable);
  Predecessors chosen;
  if (wanted == nullptr || *wanted == '\0') return chosen;
  if (std::string(wanted) == "all") return all_of_them();
  std::istringstream list(wanted);
  for (std::string name; std::getline(list, name, ',');) add_named(chosen, name);
  return chosen;
}

std::string names_of(Predecessors predecessors) {
  std::string text;
  for (const auto& n : kPredecessorNames) {
    if (!predecessors.has(n.which)) continue;
    if (!text.empty()) text += ",";
    text += n.name;
  }
  return text;
}

}  // namespace assay::gpu
