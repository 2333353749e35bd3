// assay watch while another program holds the telemetry of runs, while reading takes long, and
// where no thread can read them.
#include <pthread.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <system_error>
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

// While it lives no thread can begin: none has room for its stack.
struct NoThreads {
  NoThreads() {
    REQUIRE(pthread_getattr_default_np(&before) == 0);
    pthread_attr_t huge;
    REQUIRE(pthread_attr_init(&huge) == 0);
    REQUIRE(pthread_attr_setstacksize(&huge, size_t(1) << 60) == 0);
    REQUIRE(pthread_setattr_default_np(&huge) == 0);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before);
    pthread_attr_destroy(&before);
  }
  pthread_attr_t before = {};
};

TEST_CASE("live: who has data keeps it where no new data can be made, and is told why") {
  const Place place;
  LiveFeed::Clock::time_point now = LiveFeed::Clock::now();
  LiveFeed feed({place.run}, 2, [&] { return now; });
  const auto failed_first = [&] {
    const NoThreads none;
    REQUIRE_THROWS_AS(feed.get(), std::system_error);
  };
  failed_first();
  const auto first = feed.get();
  REQUIRE(first->live["problem"].is_null());
  now += std::chrono::hours(1);
  {
    const NoThreads none;
    const auto old = feed.get();
    REQUIRE(old->live["problem"].get<std::string>().starts_with(
        "The charts cannot be brought up to date: "));
    REQUIRE(old->report == first->report);
    REQUIRE(old->etag != first->etag);
    REQUIRE(feed.get() == old);  // not before its time
  }
  now += std::chrono::hours(1);
  const auto again = feed.get();  // though no file has changed
  REQUIRE(again->live["problem"].is_null());
  REQUIRE(again->report == first->report);
  REQUIRE(feed.times_made() == 2);
}

}  // namespace
}  // namespace assay::test_live_held
