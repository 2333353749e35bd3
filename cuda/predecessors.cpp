#include "cuda/predecessors.h"

#include <cstdlib>
#include <sstream>

#include "base/check.h"

namespace assay::gpu {

namespace {

Predecessors all_predecessors() {
  Predecessors all;
  for (const PredecessorName& p : kPredecessorNames) all.add(p.which);
  return all;
}

void add_named(Predecessors& to, const std::string& name) {
  for (const PredecessorName& p : kPredecessorNames) {
    if (name == p.name) return to.add(p.which);
  }
  throw UserError(strprintf("ASSAY_GPU_PREDECESSORS names \"%s\"", name.c_str()),
                  "it takes all, or some of " + names_of(all_predecessors()));
}

}  // namespace

Predecessors predecessors_by_environment() {
  const char* const names = std::getenv("ASSAY_GPU_PREDECESSORS");
  Predecessors chosen;
  if (names == nullptr || *names == '\0') return chosen;
  if (std::string(names) == "all") return all_predecessors();
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) add_named(chosen, name);
  return chosen;
}

std::string names_of(Predecessors predecessors) {
  std::string text;
  for (const PredecessorName& p : kPredecessorNames) {
    if (!predecessors.has(p.which)) continue;
    if (!text.empty()) text += ",";
    text += p.name;
  }
  return text;
}

}  // namespace assay::gpu
