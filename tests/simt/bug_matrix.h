// Kernels with one bug each, and how each must be detected: under a schedule by a wrong result or
// an error, by a sanitizer, or by the race detector. An undetected bug is a gap in the SIMT
// emulator.
#pragma once

#include <span>

namespace assay::test {

enum class Seen { kNo, kWrong, kError };  // nothing, a wrong result, a KernelError

// kReports: the build with -fsanitize=address,undefined reports the bug on stderr and may end the
// process.
enum class Asan { kQuiet, kReports };

struct Bug {
  const char* name;
  int (*run)();  // returns the number of wrong elements
  Seen forward, reverse;
  Seen random;  // under at least one seed of some_schedules(); kWrong and kError count alike
  const char* report = "";  // contained in the KernelError's text
  Asan asan = Asan::kQuiet;
  Seen race = Seen::kNo;  // kError: the race detector's build reports a race under each schedule
};

// Requires that each bug is detected as stated; each is a section of a Catch2 test case.
void require_seen(std::span<const Bug> bugs);
// Requires that correct kernels are right under every schedule, in every build.
void require_never_seen(std::span<const Bug> right);

}  // namespace assay::test
