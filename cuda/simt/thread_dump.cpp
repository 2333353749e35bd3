#include <algorithm>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "cuda/simt/scheduler.h"

namespace assay::simt {
namespace {

std::string where(const Thread& t) {
  if (t.state == Thread::State::kExited) return "exited";
  std::string text = strprintf("%s at %s", t.wait.what, short_place(t.wait.here).c_str());
  if (t.wait.object == nullptr) return text;
  if (is_shared(t.wait.object))
    return text + strprintf(" shared+%u", shared_address(t.wait.object));
  return text + strprintf(" %p", t.wait.object);
}

// "0-31,64-126 by 2"
std::string ranges(const std::vector<int>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i + 1 < numbers.size() ? i + 1 : i;
    const int step = numbers[last] - numbers[i];
    while (last + 1 < numbers.size() && numbers[last + 1] - numbers[last] == step) ++last;
    if (last == i + 1 && step > 1) last = i;  // two numbers are not a range
    text += strprintf(text.empty() ? "%d" : ",%d", numbers[i]);
    if (last > i) text += strprintf("-%d", numbers[last]);
    if (last > i && step > 1) text += strprintf(" by %d", step);
    i = last + 1;
  }
  return text;
}

}  // namespace

// file:line, with the last folder of the path.
std::string short_place(SourceLocation here) {
  const char* name = here.file;
  const char* last = std::strrchr(name, '/');
  if (last != nullptr) {
    while (last > name && last[-1] != '/') --last;
    name = last;
  }
  return strprintf("%s:%d", name, here.line);
}

// "threads 128: mbarrier_wait at ops/linear.cu:59 shared+16400; threads 0-126 by 2: exited"
std::string describe_threads(const Block& block) {
  struct Group {
    std::string where;
    std::vector<int> threads;
  };
  std::vector<Group> groups;
  for (int i = 0; i < block.threads; ++i) {
    const std::string text = where(Scheduler::instance().thread(block.first_slot + i));
    auto known =
        std::find_if(groups.begin(), groups.end(), [&](const Group& g) { return g.where == text; });
    if (known == groups.end()) known = groups.insert(known, {text, {}});
    known->threads.push_back(i);
  }
  std::string result;
  for (const Group& g : groups)
    result += (result.empty() ? "threads " : "; threads ") + ranges(g.threads) + ": " + g.where;
  return result;
}

}  // namespace assay::simt
