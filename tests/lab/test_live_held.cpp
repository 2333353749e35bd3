// assay watch while another program holds the telemetry of a run.
#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "base/seconds_since.h"
#include "engine/telemetry/sqlite.h"
#include "lab/live/feed.h"
#include "lab/live/run_view.h"
#include "tests/catch.h"
#include "tests/lab/fake_run.h"

namespace assay::test_live_held {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

struct Place {
  fs::path folder = fs::temp_directory_path() / ("assay-live-held-" + std::to_string(getpid()));
  std::string run = folder / "moe";

  Place() {
    fs::remove_all(folder);
    FakeRun{.path = run, .data = folder / "data"}.write();
  }
  ~Place() { fs::remove_all(folder); }
};

TEST_CASE("live: no look waits long for a program that holds a run, and the next one reads it") {
  const Place place;
  LiveFeed::Clock::time_point now = LiveFeed::Clock::now();
  LiveFeed feed({place.run}, 2, [&] { return now; });
  RunViews views({place.run});
  {
    Database holder(place.run + "/telemetry.db", Database::Mode::kCreate);
    holder.run("BEGIN EXCLUSIVE");
    for (int look = 0; look < 2; ++look) {
      const Clock::time_point begun = Clock::now();
      views.read(Wait::kBrief);
      const auto page = feed.get();
      const double took_s = seconds_since(begun);
      REQUIRE(took_s < 5);  // each of them waits 0.2 s, or twice that
      REQUIRE(views.all()[0].status.state == RunState::kUnreadable);
      REQUIRE(views.all()[0].status.hint.find("another program holds the file") == 0);
      REQUIRE(page->live["runs"][0]["state"] == "unreadable");
      now += std::chrono::hours(1);
    }
    holder.run("ROLLBACK");
  }
  views.read(Wait::kBrief);
  REQUIRE(views.all()[0].status.state == RunState::kEnded);
  REQUIRE(feed.get()->live["runs"][0]["state"] == "ended");
}

}  // namespace
}  // namespace assay::test_live_held
