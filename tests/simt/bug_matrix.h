// Kernels with one bug each, and who must notice it how: a schedule by a wrong result or a report,
// a sanitizer, the race detector. A bug that nobody notices is a hole in the executor.
#pragma once

#include <span>

namespace assay::test {

enum class Seen { kNo, kWrong, kError };  // nothing, a wrong result, a KernelError

// Whether the build with -fsanitize=address,undefined reports it on stderr (and may end the
// process).
enum class Asan { kQuiet, kReports };

struct Bug {
  const char* name;
  int (*run)();  // elements that are wrong
  Seen forward, reverse;
  Seen random;  // by one seed of some_schedules() at least; wrong or error does not matter
  const char* report = "";  // part of the KernelError's text
  Asan asan = Asan::kQuiet;
  Seen race = Seen::kNo;  // kError: the race detector's build reports a race under each schedule
};

// A section of a Catch2 test case each.
void require_seen(std::span<const Bug> bugs);
// The kernels without a bug: reported under no schedule, in no build.
void require_never_seen(std::span<const Bug> right);

}  // namespace assay::test
