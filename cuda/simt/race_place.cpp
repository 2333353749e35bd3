#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "cuda/simt/race_internal.h"
#include "cuda/simt/scheduler.h"

extern "C" const char __executable_start;  // defined by the linker

namespace assay::simt {
namespace {

constexpr Place kIsHere = Place{1} << 31;
std::vector<SourceLocation> heres;

// "file:line" by addr2line, or the address if addr2line finds none.
std::string line_of(Place offset) {
  char line[512] = {};
  const std::string command =
      strprintf("addr2line -e /proc/%d/exe 0x%x 2>/dev/null", int(getpid()), offset);
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return strprintf("+0x%x", offset);
  const char* const got = std::fgets(line, sizeof line, pipe);
  pclose(pipe);
  if (got == nullptr || line[0] == '?') return strprintf("+0x%x", offset);
  std::string text = line;
  text = text.substr(0, text.find_first_of(" \n"));
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos) return text;
  text[colon] = '\0';
  return short_place({text.c_str(), std::atoi(text.c_str() + colon + 1)});
}

}  // namespace

Place place_of(const void* code) {
  return Place(static_cast<const char*>(code) - &__executable_start) & ~kIsHere;
}

Place place_of(SourceLocation here) {
  for (size_t i = 0; i < heres.size(); ++i)
    if (heres[i].file == here.file && heres[i].line == here.line) return kIsHere | Place(i);
  heres.push_back(here);
  return kIsHere | Place(heres.size() - 1);
}

std::string describe_place(Place place) {
  if (place == kAsyncPlace) return "an asynchronous copy";
  if (place & kIsHere) return short_place(heres[place & ~kIsHere]);
  return line_of(place);
}

}  // namespace assay::simt
