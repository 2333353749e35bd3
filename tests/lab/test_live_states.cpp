// assay watch of runs with a checkpoint and less telemetry than steps: an export of `assay dissect
// used`, which has none, and a run that stopped between two logged steps.
#include <unistd.h>

#include <filesystem>

#include "base/file.h"
#include "engine/run/folder_lock.h"
#include "engine/telemetry/sqlite.h"
#include "lab/live/feed.h"
#include "lab/live/run_view.h"
#include "lab/live/text_frame.h"
#include "tests/catch.h"
#include "tests/lab/fake_run.h"

namespace assay::test_live_states {
namespace {

namespace fs = std::filesystem;

struct Place {
  fs::path folder = fs::temp_directory_path() / ("assay-live-states-" + std::to_string(getpid()));
  std::string run = folder / "moe";

  Place() {
    fs::remove_all(folder);
    FakeRun{.path = run, .data = folder / "data"}.write();
  }
  ~Place() { fs::remove_all(folder); }
  std::string screen() const {
    std::string text;
    for (const StyledLine& line : text_frame({view_run(run, Seen::kNever)}, {.columns = 160},
                                             Glyphs::kAscii, Colours::kNo)) {
      text += line.text(StyledLine::Escapes::kNone) + "\n";
    }
    return text;
  }
};

TEST_CASE("live: an export of dissect used is no run that broke off") {
  const Place place;
  fs::remove(place.run + "/telemetry.db");
  REQUIRE(run_status(place.run).state == RunState::kBrokenOff);
  write_file_atomic(place.run + "/meta.json",
                    R"({"command": ["assay", "dissect", "used", "runs/a", "--export", "runs/b"]})");
  const RunStatus status = run_status(place.run);
  REQUIRE(status.state == RunState::kExport);
  REQUIRE(is_over(status));
  REQUIRE(status_text(status, Seen::kNever) == "an export of `dissect used`, without telemetry");
  REQUIRE(place.screen().find("moe: an export of `dissect used`, without") != std::string::npos);
  LiveFeed feed({place.run}, 2);
  const auto page = feed.get();
  REQUIRE(page->live["runs"][0]["state"] == "export");
  REQUIRE(page->live["over"] == true);
  const FolderLock lock(place.run, "");  // somebody trains it further
  REQUIRE(run_status(place.run).state == RunState::kStarting);
}

TEST_CASE("live: the loss of a run that stopped between two logged steps has its step") {
  const Place place;
  REQUIRE(place.screen().find("loss 5.0000  val 4.2500 at 40") != std::string::npos);
  Database(place.run + "/telemetry.db", Database::Mode::kCreate)
      .run("DELETE FROM scalar WHERE step > 30;");
  const std::string text = place.screen();
  CAPTURE(text);
  REQUIRE(text.find("step 40 of 40") != std::string::npos);
  REQUIRE(text.find("loss 5.0000 at 30  val 4.2500 at 40") != std::string::npos);
}

TEST_CASE("live: where not all runs fit, those that are training come first") {
  const Place place;
  const RunView ended = view_run(place.run, Seen::kNever);
  std::vector<RunView> runs(30, ended);
  for (size_t i = 0; i < runs.size(); ++i) runs[i].status.path = "runs/r" + std::to_string(i);
  runs[25].status.state = RunState::kTraining;
  runs[28].status.state = RunState::kStarting;
  std::string text;
  for (const StyledLine& line :
       text_frame(runs, {.columns = 100, .rows = 24}, Glyphs::kAscii, Colours::kNo)) {
    text += line.text(StyledLine::Escapes::kNone) + "\n";
  }
  CAPTURE(text);
  const size_t first = text.find("runs/r0 "), training = text.find("runs/r25 ");
  REQUIRE(first != std::string::npos);
  REQUIRE(training != std::string::npos);
  REQUIRE(text.find("runs/r28 ") > training);  // in their order
  REQUIRE(first < training);
  REQUIRE(text.find("runs/r24 ") == std::string::npos);
  REQUIRE(text.find("and 20 more runs") != std::string::npos);
}

}  // namespace
}  // namespace assay::test_live_states
