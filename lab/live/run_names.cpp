#include "lab/live/run_names.h"

#include <algorithm>
#include <cstdlib>
#include <set>

namespace assay {
namespace {

using Names = std::vector<std::string>;

bool all_fit(const Names& names, size_t columns) {
  return std::all_of(names.begin(), names.end(),
                     [&](const std::string& name) { return name.size() <= columns; });
}

// The beginning that all names share, up to and with the last of these characters.
size_t shared_beginning(const Names& names, const char* ends) {
  std::string shared = names.front();
  for (const std::string& name : names) {
    const auto differs = std::mismatch(shared.begin(), shared.end(), name.begin(), name.end());
    shared.erase(differs.first, shared.end());
  }
  const size_t last = shared.find_last_of(ends);
  return last == std::string::npos ? 0 : last + 1;
}

Names without_beginning(Names names, size_t length) {
  if (length < 2) return names;  // its mark is as long
  for (std::string& name : names) name = "<" + name.substr(length);
  return names;
}

// `before` characters of the beginning are left of a name that is too long.
Names cut_in_the_middle(Names names, size_t columns, size_t before) {
  for (std::string& name : names) {
    if (name.size() <= columns) continue;
    const size_t after = columns - 1 - before;
    name = name.substr(0, before) + "~" + name.substr(name.size() - after);
  }
  return names;
}

}  // namespace

Names short_run_names(const Names& paths, int columns) {
  const auto room = size_t(std::max(3, columns));
  if (all_fit(paths, room)) return paths;
  Names names = without_beginning(paths, shared_beginning(paths, "/"));
  if (all_fit(names, room)) return names;
  names = without_beginning(paths, shared_beginning(paths, "/-"));
  Names best;
  size_t most = 0;
  int least_off = 0;
  for (int before = 0; before < int(room); ++before) {
    Names cut = cut_in_the_middle(names, room, size_t(before));
    const size_t different = std::set<std::string>(cut.begin(), cut.end()).size();
    const int off = std::abs(2 * before - int(room - 1));
    if (different < most || (different == most && off >= least_off)) continue;
    most = different;
    least_off = off;
    best = std::move(cut);
  }
  return best;
}

}  // namespace assay
