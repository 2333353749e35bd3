#include "cuda/predecessors.h"

#include <cstdlib>
#include <sstream>

#include "base/check.h"

namespace assay::gpu {

namespace {

// Names: kPredecessorNames or kTrialNames.
template <typename Way, typename Names>
Ways<Way> all_of(const Names& names) {
  Ways<Way> all;
  for (const auto& n : names) all.add(n.which);
  return all;
}

template <typename Way, typename Names>
std::string text_of(Ways<Way> ways, const Names& names) {
  std::string text;
  for (const auto& n : names) {
    if (!ways.has(n.which)) continue;
    if (!text.empty()) text += ",";
    text += n.name;
  }
  return text;
}

template <typename Way, typename Names>
void add_named(Ways<Way>& to, const std::string& name, const Names& names, const char* variable) {
  for (const auto& n : names) {
    if (name == n.name) return to.add(n.which);
  }
  throw UserError(strprintf("%s names \"%s\"", variable, name.c_str()),
                  "it takes all, or some of " + text_of(all_of<Way>(names), names));
}

template <typename Way, typename Names>
Ways<Way> by_environment(const char* variable, const Names& names) {
  const char* const wanted = std::getenv(variable);
  Ways<Way> chosen;
  if (wanted == nullptr || *wanted == '\0') return chosen;
  if (std::string(wanted) == "all") return all_of<Way>(names);
  std::istringstream list(wanted);
  for (std::string name; std::getline(list, name, ',');) add_named(chosen, name, names, variable);
  return chosen;
}

}  // namespace

Predecessors predecessors_by_environment() {
  return by_environment<Predecessor>("ASSAY_GPU_PREDECESSORS", kPredecessorNames);
}
Trials trials_by_environment() {
  return by_environment<Trial>("ASSAY_GPU_TRY", kTrialNames);
}
std::string names_of(Predecessors predecessors) {
  return text_of(predecessors, kPredecessorNames);
}
std::string names_of(Trials trials) {
  return text_of(trials, kTrialNames);
}

}  // namespace assay::gpu
