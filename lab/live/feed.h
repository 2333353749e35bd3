// The data that a live page polls: the state of every watched run, and the data of their report.
//
//   {"live": {"id", "every_s", "over", "problem": why the report is not that of the runs as they
//             are, or null, "runs": [{"path", "state", "text", "step", "steps"}]},
//    "report": report_data(), or null while no run has telemetry}
//
// It is made when somebody asks, at most once per `every_s` however many ask, not at all while the
// files of the runs stay as they are and could be read, and never for more than a twentieth of one
// core's time: a page about a large run is refreshed less often. Nobody waits longer than
// `patience` for it who can have the data from before. As in a page of `assay report`, curves have
// fewer points where the data would be too large.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "lab/live/run_status.h"
#include "lab/page/page.h"

namespace assay {

struct LiveData {
  std::string json;
  std::string etag;  // with its quotes
  nlohmann::ordered_json live, report;
};

// Slashes at the end of a path are dropped. UserError if a run is given twice.
std::vector<std::string> each_run_once(std::vector<std::string> runs);

// The time to wait after work that took `busy_s` of a core.
double pause_s(double every_s, double busy_s);
double thread_cpu_s();

class LiveFeed {
 public:
  using Clock = std::chrono::steady_clock;
  using Now = std::function<Clock::time_point()>;

  static constexpr std::chrono::milliseconds kPatience{10'000};

  // largest_bytes: of the report as text, if fewer points suffice for that. now: called by one
  // thread at a time.
  LiveFeed(std::vector<std::string> runs, double every_s, Now now = Clock::now,
           size_t largest_bytes = largest_data_bytes(),
           std::chrono::milliseconds patience = kPatience);

  // Never null. A caller that comes while the data is made for another one gets what was there
  // before, and so does one whose data takes longer than its patience, or cannot be made ("problem"
  // says why). Only the first data is waited for; throws what it failed with.
  std::shared_ptr<const LiveData> get();
  // Whether data is being made. The destructor waits for it.
  bool is_making();
  int64_t times_made() const { return made_; }
  const std::vector<std::string>& runs() const { return runs_; }

 private:
  std::string fingerprint() const;
  nlohmann::ordered_json live_json(const std::vector<RunStatus>& statuses);
  bool make_report(const std::vector<RunStatus>& statuses);
  std::shared_ptr<const LiveData> read(std::string fingerprint);
  void make();
  // Both with the lock. start(): begins a thread that makes data; false if there can be none, and
  // the old data says so.
  bool start();
  bool is_busy() const;

  const std::vector<std::string> runs_;
  const double every_s_;
  const Now now_;
  const size_t largest_bytes_;
  const std::chrono::milliseconds patience_;
  const std::string id_;  // of this server: a page notices that another one took its place

  // Of the thread that makes data, one after the other.
  std::string fingerprint_;  // of the runs as they were read; "": read them again
  std::vector<Seen> seen_;
  nlohmann::ordered_json report_;
  std::string problem_;  // why report_ is an old one
  std::atomic<int64_t> made_ = 0;

  std::mutex mutex_;  // guards what follows
  Clock::time_point next_ = {};
  std::shared_ptr<const LiveData> current_;
  std::shared_future<void> making_;  // last: its end waits for that thread
};

}  // namespace assay
