#include "tests/simt/bug_matrix.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <string>

#include "cuda/simt/race.h"
#include "cuda/simt/sanitizer.h"
#include "tests/catch.h"
#include "tests/simt/run.h"

namespace assay::test {
namespace {

const char* name_of(Seen s) {
  return s == Seen::kNo ? "nothing" : s == Seen::kWrong ? "a wrong result" : "an error";
}

struct Outcome {
  Seen seen;
  std::string text;
};

Outcome outcome(const Bug& bug, simt::Schedule schedule) {
  simt::set_schedule(schedule);
  Outcome result = {Seen::kNo, ""};
  try {
    if (bug.run() != 0) result.seen = Seen::kWrong;
  } catch (const simt::KernelError& e) {
    result = {Seen::kError, e.what()};
  }
  simt::set_schedule({});
  return result;
}

void require_seen(const Outcome& got, Seen want, const char* report) {
  INFO("got " << name_of(got.seen) << ", want " << name_of(want) << ": " << got.text);
  REQUIRE(got.seen == want);
  if (got.seen == Seen::kError) REQUIRE(got.text.find(report) != std::string::npos);
}

// Requires a sanitizer report. Runs the bug in a child process, because the sanitizer may end it.
void require_sanitizer_reports(const Bug& bug) {
  std::fflush(nullptr);
  std::FILE* const report = std::tmpfile();
  REQUIRE(report != nullptr);
  const pid_t child = fork();
  if (child == 0) {
    dup2(fileno(report), STDERR_FILENO);
    std::signal(SIGSEGV, SIG_DFL);  // instead of Catch2's handler
    outcome(bug, {});
    _exit(0);
  }
  int status = 0;
  REQUIRE(waitpid(child, &status, 0) == child);
  std::string text(10'000, ' ');
  std::rewind(report);
  text.resize(std::fread(text.data(), 1, text.size(), report));
  std::fclose(report);
  INFO(text);
  const int reported = text.find("ERROR: AddressSanitizer") != std::string::npos ||
                       text.find("runtime error: ") != std::string::npos;
  REQUIRE((reported || WIFSIGNALED(status)));
}

void require_schedules_see(const Bug& bug) {
  Seen random = Seen::kNo;
  for (const simt::Schedule schedule : some_schedules()) {
    INFO(simt::to_string(schedule));
    const Outcome got = outcome(bug, schedule);
    if (schedule.order == simt::Order::kForward) require_seen(got, bug.forward, bug.report);
    if (schedule.order == simt::Order::kReverse) require_seen(got, bug.reverse, bug.report);
    if (schedule.order == simt::Order::kRandom && got.seen != Seen::kNo) random = got.seen;
  }
  REQUIRE((random == Seen::kNo) == (bug.random == Seen::kNo));
}

}  // namespace

void require_seen(std::span<const Bug> bugs) {
  for (const Bug& bug : bugs) {
    DYNAMIC_SECTION(bug.name) {
      if (simt::kAsan && bug.asan == Asan::kReports) {
        require_sanitizer_reports(bug);
      } else if (!simt::race_detector_present()) {
        require_schedules_see(bug);
      } else if (bug.race == Seen::kError) {
        for (const simt::Schedule schedule : some_schedules()) {
          INFO(simt::to_string(schedule));
          require_seen(outcome(bug, schedule), Seen::kError, "race: ");
        }
      }
    }
  }
}

void require_never_seen(std::span<const Bug> right) {
  for (const Bug& bug : right) {
    INFO(bug.name);
    for (const simt::Schedule schedule : some_schedules()) {
      INFO(simt::to_string(schedule));
      require_seen(outcome(bug, schedule), Seen::kNo, "");
    }
  }
}

}  // namespace assay::test
