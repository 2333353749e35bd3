// assay watch of runs with a checkpoint and less telemetry than steps: an export of `assay dissect
// used`, which has none, and a run that stopped between two logged steps. And of folders with what
// no run wrote: the other runs stay.
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/file.h"
#include "engine/run/folder_lock.h"
#include "engine/run/run_dir.h"
#include "engine/telemetry/sqlite.h"
#include "lab/dissect/damage.h"
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

  explicit Place(int64_t planned = FakeRun::kSteps) {
    fs::remove_all(folder);
    FakeRun{.path = run, .data = folder / "data", .planned = planned}.write();
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

TEST_CASE("live: the gradient norm is that of the last logged step, also where it is NaN") {
  const Place place;
  const auto sql = [&](const std::string& statement) {
    Database(place.run + "/telemetry.db", Database::Mode::kCreate).run(statement);
  };
  REQUIRE(place.screen().find("norm") == std::string::npos);  // this run has none
  sql("INSERT INTO scalar SELECT step, 'gradient_norm', 0.25 FROM scalar WHERE name = 'hash';");
  REQUIRE(place.screen().find("norm 0.25") != std::string::npos);
  // NaN is not recorded: neither the loss of that step nor its norm.
  sql("DELETE FROM scalar WHERE step = 40 AND name IN ('train_loss_nats', 'gradient_norm');");
  const std::string text = place.screen();
  CAPTURE(text);
  REQUIRE(text.find("loss 5.0000 at 39") != std::string::npos);
  REQUIRE(text.find("norm nan") != std::string::npos);
}

TEST_CASE("live: the verdict on routers says of how many logged steps it is") {
  const Place place;
  REQUIRE(place.screen().find("router: too early (last 40 logged steps;") != std::string::npos);
  const RunDir folder(place.run, RunDir::Start::kContinue);
  Config config = *folder.previous();
  config.telemetry.window = 10;
  folder.write_config(config);
  REQUIRE(place.screen().find("router: collapsed (last 10 logged steps;") != std::string::npos);
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

// A good run and an odd one, watched together.
struct TwoRuns {
  Place place{60};
  std::string odd = place.folder / "odd";
  LiveFeed::Clock::time_point now = LiveFeed::Clock::now();
  LiveFeed feed{{place.run, odd}, 2, [this] { return now; }};

  TwoRuns() { write_odd(); }
  void write_odd() const {
    fs::remove_all(odd);
    FakeRun{.path = odd, .data = place.folder / "data"}.write();
  }
  std::shared_ptr<const LiveData> later() {
    now += std::chrono::hours(1);
    return feed.get();
  }
};

TEST_CASE("live: samples that cannot be read are missing from their run, not from the report") {
  TwoRuns two;
  fs::create_directory(two.odd + "/samples.jsonl");
  const auto data = two.later();
  REQUIRE(data->report["runs"].size() == 2);
  REQUIRE(data->report["runs"][0]["notes"].empty());
  REQUIRE(data->report["runs"][1]["problem"].is_null());
  REQUIRE(data->report["runs"][1]["samples"].is_null());
  const std::string note = data->report["runs"][1]["notes"].at(0);
  REQUIRE(note.find("The samples cannot be shown: cannot read " + two.odd) == 0);
  Database(two.place.run + "/telemetry.db", Database::Mode::kCreate)
      .run("INSERT INTO scalar VALUES(41, 'train_loss_nats', 3);");
  const auto more = two.later()->report["runs"][0]["scalars"]["train_loss_nats"]["step"];
  REQUIRE(more.back() == 41);
}

TEST_CASE("live: telemetry that is a link to itself is unreadable, and the other run stays") {
  TwoRuns two;
  fs::remove(two.odd + "/telemetry.db");
  fs::create_symlink("telemetry.db", two.odd + "/telemetry.db");
  const auto data = two.later();
  REQUIRE(data->live["runs"][0]["state"] == "ended");
  REQUIRE(data->live["runs"][1]["state"] == "unreadable");
  REQUIRE(data->report["runs"].size() == 2);
  REQUIRE(two.feed.get() == data);  // not before its time
  RunViews views({two.place.run, two.odd});
  views.read(Wait::kBrief);
  REQUIRE(views.all()[0].status.state == RunState::kEnded);
  REQUIRE(views.all()[1].status.state == RunState::kUnreadable);
}

TEST_CASE("live: for a pipe in the folder of a run nobody waits") {
  TwoRuns two;
  for (const char* name : {"samples.jsonl", kDamageFile, "meta.json", "imported.json",
                           "config.yaml", ".lock", "telemetry.db-journal", "telemetry.db-wal"}) {
    CAPTURE(name);
    two.write_odd();
    fs::create_directories(two.odd + "/dissect");
    const std::string pipe = two.odd + "/" + name;
    fs::remove(pipe);
    REQUIRE(mkfifo(pipe.c_str(), 0644) == 0);
    const auto data = two.later();
    REQUIRE(data->live["runs"][0]["state"] == "ended");
    REQUIRE(data->report["runs"][0]["problem"].is_null());
    const bool is_told = data->json.find("a pipe or a device") != std::string::npos;
    REQUIRE(is_told == (std::string(name) != ".lock"));
  }
}

TEST_CASE("live: why the charts stay as they were is told, and ends with its cause") {
  TwoRuns two;
  REQUIRE(two.later()->live["problem"].is_null());
  fs::remove_all(two.odd);
  fs::create_directory_symlink(two.place.run, two.odd);
  const auto data = two.later();
  const std::string problem = data->live["problem"];
  REQUIRE(problem.find("The charts cannot be brought up to date: " + two.odd) == 0);
  REQUIRE(data->report["runs"].size() == 2);
  fs::remove(two.odd);
  two.write_odd();
  REQUIRE(two.later()->live["problem"].is_null());
}

}  // namespace
}  // namespace assay::test_live_states
