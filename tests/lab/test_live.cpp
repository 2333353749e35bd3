// The parts of assay watch without a socket and without a terminal: states, data, answers, screens.
#include <sys/resource.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/check.h"
#include "base/file.h"
#include "engine/run/folder_lock.h"
#include "engine/telemetry/sqlite.h"
#include "lab/dissect/damage.h"
#include "lab/dissect/used.h"
#include "lab/live/feed.h"
#include "lab/live/run_view.h"
#include "lab/live/site.h"
#include "lab/live/text_frame.h"
#include "lab/runs/text_table.h"
#include "tests/catch.h"
#include "tests/lab/fake_run.h"

namespace assay::test_live {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// A folder with a finished run "moe", removed at the end.
struct Place {
  fs::path folder = fs::temp_directory_path() / ("assay-live-" + std::to_string(getpid()));
  std::string run = folder / "moe";

  Place() {
    fs::remove_all(folder);
    write();
  }
  ~Place() { fs::remove_all(folder); }
  void write() const { FakeRun{.path = run, .data = folder / "data"}.write(); }
  void sql(const std::string& statement) const {
    Database(run + "/telemetry.db", Database::Mode::kCreate).run(statement);
  }
  void set_window(int64_t steps) const {
    const RunDir folder(run, RunDir::Start::kContinue);
    Config config = *folder.previous();
    config.telemetry.window = steps;
    folder.write_config(config);
  }
  void age() const {  // as if nothing was written for an hour
    const auto then = fs::file_time_type::clock::now() - std::chrono::hours(1);
    fs::last_write_time(run + "/telemetry.db", then);
  }
};

// A clock that stands still until it is moved.
struct HandClock {
  LiveFeed::Clock::time_point now = LiveFeed::Clock::now();
  void move(double seconds) {
    now += std::chrono::duration_cast<LiveFeed::Clock::duration>(
        std::chrono::duration<double>(seconds));
  }
  LiveFeed::Now reader() {
    return [this] { return now; };
  }
};

TEST_CASE("live: the state of a run") {
  const Place place;
  const auto text = [&] { return status_text(run_status(place.run), Seen::kNever); };
  REQUIRE(text() == "finished, step 40 of 40");

  SECTION("training, and what the last 20 logged steps say of the rest") {
    const FolderLock lock(place.run, "");
    place.sql("DELETE FROM event; DELETE FROM scalar WHERE step > 30;");
    REQUIRE(text() == "training, step 30 of 40 (75%), about 5s left");
    place.sql("INSERT INTO scalar VALUES(30, 'eta_s', 90);");  // with evaluations and saves
    REQUIRE(text() == "training, step 30 of 40 (75%), about 1m30s left");
    place.sql("INSERT INTO event VALUES(30, '', 'resume', '');");  // perhaps with other steps
    REQUIRE(text() == "training, step 30 of 40 (75%), about 5s left");
    place.sql("DELETE FROM scalar;");
    REQUIRE(text() == "starting, no step logged yet");
  }
  SECTION("resumed after an end that was recorded") {
    place.sql("INSERT INTO event VALUES(40, '', 'resume', '');");
    REQUIRE(run_status(place.run).state ==
            RunState::kTraining);  // on another machine: no lock here
    place.age();
    REQUIRE(run_status(place.run).state == RunState::kBrokenOff);
  }
  SECTION("stopped by a guard, or as asked") {
    place.sql("UPDATE event SET detail = 'non_finite' WHERE kind = 'end';");
    REQUIRE(text() == "stopped: NaN or infinite, step 40 of 40");
    place.sql("UPDATE event SET detail = 'stop_after' WHERE kind = 'end';");
    REQUIRE(text() == "stopped by --stop-after, step 40 of 40");
  }
  SECTION("damaged") {
    std::ofstream(place.run + "/telemetry.db", std::ios::trunc) << std::string(5000, 'x');
    REQUIRE(run_status(place.run).state == RunState::kUnreadable);
    REQUIRE(text().find("not a database") != std::string::npos);
  }
  SECTION("a database without telemetry") {
    place.sql("PRAGMA user_version = 0;");
    REQUIRE(run_status(place.run).state == RunState::kUnreadable);
    REQUIRE(text().find("is not a telemetry database") != std::string::npos);
  }
  SECTION("the file of its telemetry is being made, or its launch was killed there") {
    fs::resize_file(place.run + "/telemetry.db", 0);
    REQUIRE(view_run(place.run, Seen::kNever).status.state == RunState::kBrokenOff);
    const FolderLock lock(place.run, "");
    REQUIRE(view_run(place.run, Seen::kNever).status.state == RunState::kStarting);
  }
  SECTION("gone") {
    const std::string before = run_fingerprint(place.run);
    fs::remove_all(place.run);
    REQUIRE(run_fingerprint(place.run) != before);
    REQUIRE(text() == "not started yet: waiting for it");
    REQUIRE(status_text(run_status(place.run), Seen::kBefore).find("gone") == 0);
  }
}

TEST_CASE("live: the fingerprint of a run changes with all that its page shows, not by itself") {
  const Place place;
  place.age();
  const std::string quiet = run_fingerprint(place.run);
  REQUIRE(run_fingerprint(place.run) == quiet);
  {
    const FolderLock lock(place.run, "");
    REQUIRE(run_fingerprint(place.run) != quiet);
  }
  REQUIRE(run_fingerprint(place.run) == quiet);
  std::string before = quiet;
  fs::create_directories(place.run + "/dissect");
  for (const char* file : {kDamageFile, kUsedFile}) {
    write_file_atomic(place.run + "/" + file, "{}");
    const std::string after = run_fingerprint(place.run);
    REQUIRE(after != before);
    before = after;
  }
  place.sql("INSERT INTO event VALUES(40, '', 'resume', '');");
  REQUIRE(run_fingerprint(place.run) != before);
}

TEST_CASE("live: data is made once per interval, and not while nothing changes") {
  const Place place;
  HandClock clock;
  LiveFeed feed({place.run}, 2, clock.reader());
  const auto first = feed.get();
  REQUIRE(first->live["over"] == true);
  REQUIRE(first->report["runs"].size() == 1);
  for (int i = 0; i < 100; ++i) REQUIRE(feed.get() == first);
  clock.move(1000);
  REQUIRE(feed.get() == first);  // looked, and nothing had changed
  REQUIRE(feed.times_made() == 1);

  place.sql("INSERT INTO scalar VALUES(41, 'train_loss_nats', 3);");
  REQUIRE(feed.get() == first);  // too early to look
  clock.move(1000);
  const auto second = feed.get();
  REQUIRE(second->etag != first->etag);
  REQUIRE(second->live["runs"][0]["step"] == 41);
  REQUIRE(feed.times_made() == 2);
}

TEST_CASE("live: making data takes at most a twentieth of the time") {
  REQUIRE(pause_s(2, 0.01) == 2);
  REQUIRE(pause_s(2, 1) == 20);
}

// While it lives, this process can hold only `more` files open beside those that it has.
struct FewFiles {
  explicit FewFiles(int more) {
    const int lowest = dup(0);
    REQUIRE(lowest >= 0);
    close(lowest);
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before) == 0);
    rlimit few = before;
    few.rlim_cur = rlim_t(lowest + more);
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewFiles() { setrlimit(RLIMIT_NOFILE, &before); }
  rlimit before = {};
};

TEST_CASE("live: what could not be read is read again, though no file has changed") {
  const Place place;
  HandClock clock;
  LiveFeed feed({place.run}, 2, clock.reader());
  for (const int files : {0, 1}) {  // the run's state cannot be read; its report cannot
    CAPTURE(files);
    place.age();  // the time of the file changes
    clock.move(1000);
    std::shared_ptr<const LiveData> failed;
    {
      const FewFiles few(files);
      failed = feed.get();
    }
    if (files == 0) {
      REQUIRE(failed->live["runs"][0]["state"] == "unreadable");
      REQUIRE(failed->live["over"] == false);
    } else {
      REQUIRE(failed->report["runs"][0]["router"].is_null());
    }
    REQUIRE(feed.get() == failed);  // not before its time
    clock.move(1000);
    const auto again = feed.get();
    REQUIRE(again->live["runs"][0]["state"] == "ended");
    REQUIRE(again->live["over"] == true);
    REQUIRE(again->report["runs"][0]["problem"].is_null());
    REQUIRE(!again->report["runs"][0]["router"].is_null());
    clock.move(1000);
    REQUIRE(feed.get() == again);
  }

  RunViews views({place.run});
  {
    const FewFiles few(0);
    views.read(Wait::kBrief);
  }
  REQUIRE(views.all()[0].status.state == RunState::kUnreadable);
  views.read(Wait::kBrief);
  REQUIRE(views.all()[0].status.state == RunState::kEnded);
  REQUIRE(views.all()[0].train_loss_nats.size() == 40);
}

TEST_CASE("live: a damaged run is over, and is not read again while it stays as it is") {
  const Place place;
  std::ofstream(place.run + "/telemetry.db", std::ios::trunc) << std::string(5000, 'x');
  place.age();
  HandClock clock;
  LiveFeed feed({place.run}, 2, clock.reader());
  const auto first = feed.get();
  REQUIRE(first->live["runs"][0]["state"] == "unreadable");
  REQUIRE(first->live["over"] == true);
  clock.move(1000);
  REQUIRE(feed.get() == first);
}

TEST_CASE("live: a report that would be too large has fewer points, as far as they go") {
  const Place place;
  const Json whole = LiveFeed({place.run}, 2).get()->report;
  REQUIRE(whole["limits"]["load_steps"] == 60);
  const size_t fewer = script_json(whole).size() - 1;
  const Json smaller = LiveFeed({place.run}, 2, LiveFeed::Clock::now, fewer).get()->report;
  REQUIRE(script_json(smaller).size() <= fewer);
  REQUIRE(smaller["limits"]["load_steps"] == 30);
  const Json least = LiveFeed({place.run}, 2, LiveFeed::Clock::now, 10).get()->report;
  REQUIRE(least["limits"]["load_steps"] == 2);
  REQUIRE(largest_data_bytes() > kLargestPageBytes / 2);
  REQUIRE(largest_data_bytes() < kLargestPageBytes);
}

TEST_CASE("live: a run that disappears leaves the others, and comes back") {
  const Place place;
  const std::string other = place.folder / "other";
  FakeRun{.path = other, .data = place.folder / "data"}.write();
  HandClock clock;
  LiveFeed feed({place.run, other}, 2, clock.reader());
  REQUIRE(feed.get()->report["runs"].size() == 2);
  fs::remove_all(place.run);
  clock.move(1000);
  const auto without = feed.get();
  REQUIRE(without->live["runs"][0]["state"] == "missing");
  REQUIRE(without->live["over"] == false);
  REQUIRE(without->report["runs"].size() == 1);
  REQUIRE(without->report["runs"][0]["label"] == "other");
  fs::remove_all(other);
  clock.move(1000);
  REQUIRE(feed.get()->report["runs"].size() == 1);  // keeps what it showed last
  place.write();
  clock.move(1000);
  REQUIRE(feed.get()->report["runs"][0]["label"] == "moe");
}

TEST_CASE("live: runs that are not there yet, and one given twice") {
  const Place place;
  HandClock clock;
  LiveFeed feed({place.folder / "later"}, 2, clock.reader());
  REQUIRE(feed.get()->report.is_null());
  LiveSite site(feed, "later", {});
  const SiteAnswer page = site.answer({.method = "GET", .path = "/", .host = "localhost"});
  REQUIRE(page.body->find("liveStart") != std::string::npos);
  REQUIRE_THROWS_AS(each_run_once({place.run, place.run + "/"}), UserError);
  REQUIRE(each_run_once({place.run + "//"})[0] == place.run);
}

struct Site {
  Place place;
  HandClock clock;
  LiveFeed feed{{place.run}, 2, clock.reader()};
  LiveSite site{feed, "t<i>tle", {"Gpu7.example"}};

  SiteAnswer ask(const std::string& method, const std::string& path,
                 const std::string& host = "localhost:7117") {
    return site.answer({.method = method, .path = path, .host = host});
  }
};

std::string header(const SiteAnswer& answer, const std::string& name) {
  for (const auto& [key, value] : answer.headers) {
    if (key == name) return value;
  }
  return "";
}

TEST_CASE("live: GET and HEAD of two paths, nothing else") {
  Site s;
  REQUIRE(s.ask("GET", "/").status == 200);
  REQUIRE(s.ask("HEAD", "/data.json").status == 200);
  for (const char* path :
       {"/index.html", "/telemetry.db", "/../moe/config.yaml", "//", "", "/data"}) {
    REQUIRE(s.ask("GET", path).status == 404);
    REQUIRE(s.ask("POST", path).status == 404);
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "PATCH", "get"}) {
    const SiteAnswer answer = s.ask(method, "/data.json");
    REQUIRE(answer.status == 405);
    REQUIRE(header(answer, "Allow") == "GET, HEAD");
  }
}

TEST_CASE("live: a host name that is not ours is refused") {
  Site s;
  for (const char* host : {"localhost", "LOCALHOST:8080", "127.0.0.1:7117", "[::1]:7117",
                           "10.0.0.7", "gpu7.EXAMPLE:1"}) {
    CAPTURE(host);
    REQUIRE(s.ask("GET", "/data.json", host).status == 200);
  }
  for (const char* host : {"evil.example", "localhost.evil.example", "evil.example:7117", "",
                           "127.0.0.1.evil.example", "[::1", "127.0.0.1:x", "gpu7"}) {
    CAPTURE(host);
    REQUIRE(s.ask("GET", "/data.json", host).status == 403);
  }
}

TEST_CASE("live: every answer has the headers that keep it apart") {
  Site s;
  for (const SiteAnswer& answer :
       {s.ask("GET", "/"), s.ask("GET", "/data.json"), s.ask("GET", "/x"), s.ask("POST", "/"),
        s.ask("GET", "/", "evil.example")}) {
    REQUIRE(header(answer, "Cache-Control") == "no-store");
    REQUIRE(header(answer, "X-Content-Type-Options") == "nosniff");
    REQUIRE(header(answer, "Content-Security-Policy").find("default-src 'none'") == 0);
    REQUIRE(header(answer, "Content-Security-Policy").find("frame-ancestors 'none'") !=
            std::string::npos);
  }
}

TEST_CASE("live: an unchanged answer is 304, and gzip unpacks to the same bytes") {
  Site s;
  SiteRequest request{.method = "GET", .path = "/data.json", .host = "localhost"};
  const SiteAnswer whole = s.site.answer(request);
  REQUIRE(nlohmann::json::parse(*whole.body)["live"]["runs"][0]["step"] == 40);
  request.accepts = Encoding::kGzip;
  const SiteAnswer packed = s.site.answer(request);
  REQUIRE(header(packed, "Content-Encoding") == "gzip");
  std::string unpacked(whole.body->size(), '\0');
  z_stream stream = {};
  REQUIRE(inflateInit2(&stream, 15 + 16) == Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.body->data()));
  stream.avail_in = uInt(packed.body->size());
  stream.next_out = reinterpret_cast<Bytef*>(unpacked.data());
  stream.avail_out = uInt(unpacked.size());
  REQUIRE(inflate(&stream, Z_FINISH) == Z_STREAM_END);
  inflateEnd(&stream);
  REQUIRE(unpacked == *whole.body);

  request.if_none_match = header(whole, "ETag");
  const SiteAnswer same = s.site.answer(request);
  REQUIRE(same.status == 304);
  REQUIRE(same.body->empty());
  request.if_none_match = "\"another\"";
  REQUIRE(s.site.answer(request).status == 200);
}

TEST_CASE("live: the page has its data, an escaped title and the polling script") {
  Site s;
  const std::string page = *s.ask("GET", "/").body;
  REQUIRE(page.find("t&lt;i&gt;tle") != std::string::npos);
  REQUIRE(page.find("t<i>tle") == std::string::npos);
  REQUIRE(page.find("connect-src 'self'") != std::string::npos);
  REQUIRE(page.find("If-None-Match") != std::string::npos);
}

std::string joined(const std::vector<StyledLine>& lines) {
  std::string text;
  for (const StyledLine& line : lines) text += line.text(StyledLine::Escapes::kNone) + "\n";
  return text;
}

ChartCurve falling(int64_t steps) {
  ChartCurve curve;
  for (int64_t step = 1; step <= steps; ++step) {
    curve.points.push_back({.step = step, .value = 10.0 - 9.0 * double(step) / double(steps)});
  }
  return curve;
}

TEST_CASE("live: a chart has its size, and a curve that falls from the left to the right") {
  const auto lines = text_chart({falling(12)}, {.columns = 30, .rows = 8}, ChartDots::kLetters);
  REQUIRE(joined(lines) ==
          "   9.3 +***\n"
          "       |   ****\n"
          "   6.0 +       ****\n"
          "       |           ****\n"
          "   2.7 +               ****\n"
          "       |                   ***\n"
          "       +----------------------\n"
          "        1              step 12\n");
}

TEST_CASE("live: charts of nothing, of one point, of NaN and of little room") {
  for (const int rows : {1, 3, 4, 12}) {
    for (const int columns : {5, 20, 80}) {
      ChartCurve odd;
      odd.points = {
          {.step = 1, .value = NAN}, {.step = 2, .value = 3}, {.step = 3, .value = INFINITY}};
      for (const std::vector<ChartCurve>& curves :
           {std::vector<ChartCurve>{}, {ChartCurve{}}, {odd}, {falling(1)}, {falling(3), odd}}) {
        const auto lines =
            text_chart(curves, {.columns = columns, .rows = rows}, ChartDots::kBraille);
        REQUIRE(int(lines.size()) == rows);
      }
    }
  }
}

TEST_CASE("live: the fall from the first loss does not take the height") {
  ChartCurve curve;
  for (int64_t step = 1; step <= 1000; ++step) {
    curve.points.push_back({.step = step, .value = step < 20 ? 10.0 : 3.0 - 1e-3 * double(step)});
  }
  const std::string text =
      joined(text_chart({curve}, {.columns = 60, .rows = 12}, ChartDots::kBraille));
  REQUIRE(text.find("  2.9") < text.find("\n"));  // the top of the axis
}

TEST_CASE("live: control characters and broken UTF-8 do not reach the terminal") {
  StyledLine line("a\033[2J\xffz\xc2\x9b\n", Style::kBad);
  REQUIRE(line.text(StyledLine::Escapes::kNone) == "a?[2J?z??");
  REQUIRE(line.columns() == 9);
  line.cut(4);
  REQUIRE(line.text(StyledLine::Escapes::kStyles) == "\033[1;31ma?[>\033[0m");
}

TEST_CASE("live: the screen of one run") {
  const Place place;
  REQUIRE(view_run(place.run, Seen::kNever).router->verdict == "too_early");  // W is 50
  place.set_window(10);
  const RunView view = view_run(place.run, Seen::kNever);
  REQUIRE(view.router);
  REQUIRE(view.router->verdict == "collapsed");
  const auto lines = text_frame({view}, {.columns = 80, .rows = 24}, Glyphs::kAscii, Colours::kNo);
  REQUIRE(lines.size() <= 24);
  const std::string text = joined(lines);
  for (const char* part : {"moe: finished, step 40 of 40", "loss 5.0000", "val 4.2500 at 40",
                           "router: collapsed", "layer   2  K*max_load 0.950", "dead 1 of 4"}) {
    CAPTURE(part, text);
    REQUIRE(text.find(part) != std::string::npos);
  }
  REQUIRE(std::all_of(text.begin(), text.end(),
                      [](char c) { return c == '\n' || (c >= ' ' && c < 127); }));
}

TEST_CASE("live: screens fit, whatever the size, for one run, several, and many layers") {
  const Place place;
  RunView view = view_run(place.run, Seen::kNever), gone;
  gone.status.path = "runs/" + std::string(200, 'x');
  RunView deep = view;
  for (int64_t layer = 3; layer < 90; ++layer) deep.router->layers.push_back({.layer = layer});
  for (const std::vector<RunView>& runs :
       {std::vector<RunView>{view}, {gone}, {deep}, {view, gone}, std::vector<RunView>(40, deep)}) {
    for (const FrameSize size :
         {FrameSize{80, 24}, FrameSize{40, 10}, FrameSize{200, 60}, FrameSize{10, 3}}) {
      for (const Glyphs glyphs : {Glyphs::kUtf8, Glyphs::kAscii}) {
        const auto lines = text_frame(runs, size, glyphs, Colours::kYes);
        REQUIRE(!lines.empty());
        REQUIRE(int(lines.size()) <= size.rows);
        for (const StyledLine& line : lines) REQUIRE(int(line.columns()) <= size.columns);
      }
    }
  }
}

TEST_CASE("live: several runs are a table with a letter each") {
  const Place place;
  place.set_window(10);
  const RunView view = view_run(place.run, Seen::kNever);
  RunView gone;
  gone.status.path = "runs/gone";
  gone.seen = Seen::kBefore;
  const std::string text =
      joined(text_frame({view, gone}, {.columns = 80, .rows = 24}, Glyphs::kUtf8, Colours::kNo));
  CAPTURE(text);
  REQUIRE(text.find("finished") != std::string::npos);
  REQUIRE(text.find("gone") != std::string::npos);
  REQUIRE(text.find("collapsed") != std::string::npos);
  REQUIRE(text.find("aaaa") != std::string::npos);  // letters tell curves apart without colours
}

}  // namespace
}  // namespace assay::test_live
