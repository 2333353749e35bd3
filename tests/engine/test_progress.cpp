#include <unistd.h>

#include <cmath>

#include "base/file.h"
#include "engine/run/log.h"
#include "engine/run/progress.h"
#include "tests/catch.h"
#include "tests/data/expect_error.h"
#include "tests/data/temp_folder.h"

namespace assay::test_progress {
namespace {

// Returns what f writes to stderr while stderr is a file, not a terminal.
std::string on_stderr(const std::function<void()>& f) {
  const TempFolder folder;
  fflush(stderr);
  const int kept = dup(STDERR_FILENO);
  FILE* file = fopen((folder / "err").c_str(), "w");
  dup2(fileno(file), STDERR_FILENO);
  f();
  fflush(stderr);
  dup2(kept, STDERR_FILENO);
  close(kept);
  fclose(file);
  return read_file(folder / "err");
}

}  // namespace

TEST_CASE("the line of a step") {
  StepLine line = {.step = 120,
                   .steps = 9536,
                   .loss = 4.8123,
                   .lr = 8.5e-4,
                   .grad_norm = 0.712,
                   .step_ms = 1200.4,
                   .tokens_per_s = 436900,
                   .mfu_percent = 45.2,
                   .load = 1.314,
                   .min_entropy = 4.02,
                   .entropy_ceiling = 4.16,
                   .seconds_left = 11299,
                   .hash = 0x1f09c3aa};
  REQUIRE(
      step_line(line) ==
      "step 120/9536 1.3% loss 4.812 lr 8.5e-04 norm 0.71 1200 ms 437k tok/s mfu 45% load 1.31x "
      "(min-H 4.02/4.16) eta 3h08m #1f09c3aa");
  REQUIRE(short_step_line(line) ==
          "step 120/9536 loss 4.812 lr 8.5e-04 437k tok/s load 1.31x eta 3h08m #1f09c3aa");
  StepLine long_run = line;
  long_run.step = 12000, long_run.steps = 37813, long_run.loss = 13.388;
  REQUIRE(short_step_line(long_run).size() <= 80);
  long_run.loss = -std::nan("");
  REQUIRE(step_line(long_run).find(" loss nan ") != std::string::npos);
  line.mfu_percent.reset();
  line.load.reset();
  line.hash = 0x0a;
  REQUIRE(
      step_line(line) ==
      "step 120/9536 1.3% loss 4.812 lr 8.5e-04 norm 0.71 1200 ms 437k tok/s eta 3h08m #0000000a");
}

TEST_CASE("durations and counts are printed in short form") {
  const std::pair<double, const char*> durations[] = {
      {0, "0s"},         {59.4, "59s"},    {59.6, "1m00s"},
      {725, "12m05s"},   {11299, "3h08m"}, {86400, "1d00h"},
      {183600, "2d03h"}, {-1, "?"},        {1e300, "11574074d01h"},
      {0.0 / 0.0, "?"}};
  for (const auto& [seconds, text] : durations) REQUIRE(duration_text(seconds) == text);
  const std::pair<double, const char*> counts[] = {{0, "0"},       {999, "999"},   {1000, "1.0k"},
                                                   {9949, "9.9k"}, {13500, "14k"}, {999499, "999k"},
                                                   {1e6, "1.0M"},  {437e6, "437M"}};
  for (const auto& [count, text] : counts) REQUIRE(count_text(count) == text);
}

TEST_CASE("the bar fits the terminal") {
  REQUIRE(progress_bar(50, 100, 60, 31) == "[##...] 50.0% 50/100 eta 1m00s");
  for (const int columns : {0, 1, 10, 31, 60, 200}) {
    REQUIRE(progress_bar(100, 100, 0, columns).size() <= static_cast<size_t>(columns));
  }
  REQUIRE(progress_bar(100, 100, 0, 80).find('.') == progress_bar(100, 100, 0, 80).find("0%") - 1);
}

TEST_CASE("the remaining time follows the recent steps") {
  Eta eta;
  REQUIRE(duration_text(eta.seconds_left(10)) == "?");
  REQUIRE(eta.seconds_left(0) == 0);
  eta.step_took(5);
  REQUIRE(eta.seconds_left(10) == Approx(50));
  for (int i = 0; i < 200; ++i) eta.step_took(1);
  REQUIRE(eta.seconds_left(100) == Approx(100).epsilon(0.01));
}

TEST_CASE("lines go to stderr and to the file; in a pipe the bar goes to neither") {
  const TempFolder folder;
  const std::string shown = on_stderr([&] {
    Log log(folder / "log.txt");
    log.info("first {} %s");
    log.set_bar("[###]");
    log.warn("second");
    REQUIRE(!log.on_terminal());
    REQUIRE(log.terminal_columns() > 0);
  });
  REQUIRE(shown == "first {} %s\nwarning: second\n");
  on_stderr([&] { Log(folder / "log.txt").info("third"); });
  const std::string file = read_file(folder / "log.txt");
  REQUIRE_THAT(file, Catch::Matchers::Matches(
                         "[0-9-]+ [0-9:]+ first \\{\\} %s\n[0-9-]+ [0-9:]+ warning: second\n"
                         "[0-9-]+ [0-9:]+ third\n"));
  expect_error([&] { Log log(folder.path()); }, "cannot write " + folder.path());
}

}  // namespace assay::test_progress
