// assay watch while another program holds the telemetry of runs, and while reading takes long.
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <thread>
#include <vector>

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

TEST_CASE("live: who has data does not wait for data that takes long to read") {
  const Place place;
  std::vector<std::string> runs = {place.run};
  for (const char* name : {"b", "c", "d", "e"}) {
    runs.push_back(place.folder / name);
    FakeRun{.path = runs.back(), .data = place.folder / "data"}.write();
  }
  LiveFeed::Clock::time_point now = LiveFeed::Clock::now();
  LiveFeed feed(
      runs, 2, [&] { return now; }, largest_data_bytes(), std::chrono::milliseconds(0));
  const auto first = feed.get();  // the first is waited for
  REQUIRE(first->live["over"] == true);
  std::vector<std::unique_ptr<Database>> holders;
  for (const std::string& run : runs) {
    holders.push_back(std::make_unique<Database>(run + "/telemetry.db", Database::Mode::kCreate));
    holders.back()->run("INSERT INTO scalar VALUES(41, 'train_loss_nats', 3); BEGIN EXCLUSIVE");
  }
  now += std::chrono::hours(1);
  REQUIRE(feed.get() == first);  // a second and more is spent on the five
  REQUIRE(feed.is_making());
  REQUIRE(feed.get() == first);
  while (feed.is_making()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  REQUIRE(feed.times_made() == 2);
  REQUIRE(feed.get()->live["runs"][0]["state"] == "unreadable");
  REQUIRE(feed.get()->report["runs"].size() == 5);
}

}  // namespace
}  // namespace assay::test_live_held
