#include "lab/live/feed.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "base/check.h"
#include "base/read_failed.h"
#include "data/json_text.h"
#include "data/sha256.h"

namespace assay {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

constexpr double kLargestShare = 0.05;  // of one core

std::string new_id() {
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  return strprintf("%ld-%lld", long(getpid()), static_cast<long long>(now));
}

// Larger than that if even the fewest points are.
Json report_of(const std::vector<std::string>& runs, size_t largest_bytes, bool& read_failed) {
  ReportLimits limits;
  while (true) {
    Json data = report_data(runs, limits, NoTelemetry::kShow, {.wait = Wait::kBrief}, &read_failed);
    const double share = double(largest_bytes) / double(script_json(data).size());
    if (share >= 1 || !limits.shrink(share)) return data;
  }
}

// Fills in the text of data.
void finish(LiveData& data) {
  const Json whole = {{"live", data.live}, {"report", data.report}};
  data.json = json_text(whole);
  data.etag = "\"" + sha256_hex(data.json).substr(0, 32) + "\"";
}

std::string problem_text(const std::string& why) {
  return "The charts cannot be brought up to date: " + why + ".";
}

// The old data, saying why it is not that of the runs as they are; as it is if even that fails, as
// without memory.
std::shared_ptr<const LiveData> outdated(const std::shared_ptr<const LiveData>& old,
                                         const std::exception& error) {
  try {
    auto data = std::make_shared<LiveData>();
    data->live = old->live;
    data->live["problem"] = problem_text(error.what());
    data->report = old->report;
    finish(*data);
    return data;
  } catch (const std::exception&) {
    return old;
  }
}

}  // namespace

std::vector<std::string> each_run_once(std::vector<std::string> runs) {
  std::set<fs::path> seen;
  for (std::string& run : runs) {
    while (run.size() > 1 && run.back() == '/') run.pop_back();
    if (!seen.insert(fs::weakly_canonical(fs::absolute(run))).second)
      throw UserError(run + " is given twice", "give every run once");
  }
  return runs;
}

double pause_s(double every_s, double busy_s) {
  return std::max(every_s, busy_s / kLargestShare);
}

double thread_cpu_s() {
  timespec time = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

LiveFeed::LiveFeed(std::vector<std::string> runs, double every_s, Now now, size_t largest_bytes,
                   std::chrono::milliseconds patience)
    : runs_(std::move(runs)),
      every_s_(every_s),
      now_(std::move(now)),
      largest_bytes_(largest_bytes),
      patience_(patience),
      id_(new_id()),
      seen_(runs_.size(), Seen::kNever) {}

std::string LiveFeed::fingerprint() const {
  std::string text;
  for (const std::string& run : runs_) text += run_fingerprint(run) + "\n";
  return text;
}

Json LiveFeed::live_json(const std::vector<RunStatus>& statuses) {
  Json live;
  live["id"] = id_;
  live["every_s"] = every_s_;
  live["over"] = std::all_of(statuses.begin(), statuses.end(), is_over);
  live["problem"] = problem_.empty() ? Json() : Json(problem_);
  live["runs"] = Json::array();
  for (size_t i = 0; i < statuses.size(); ++i) {
    const RunStatus& s = statuses[i];
    live["runs"].push_back({{"path", s.path},
                            {"state", run_state_name(s.state)},
                            {"text", status_text(s, seen_[i])},
                            {"step", s.step},
                            {"steps", s.steps}});
    if (s.state != RunState::kMissing) seen_[i] = Seen::kBefore;
  }
  return live;
}

// If no run is left, the page keeps what it showed last. Returns whether all of it could be read.
bool LiveFeed::make_report(const std::vector<RunStatus>& statuses) {
  problem_.clear();
  std::vector<std::string> readable;
  for (const RunStatus& s : statuses) {
    if (s.state != RunState::kMissing && s.steps > 0) readable.push_back(s.path);
  }
  if (readable.empty()) return true;
  bool read_failed = false;
  std::string why;
  try {
    report_ = report_of(readable, largest_bytes_, read_failed);
  } catch (const UserError& error) {
    read_failed = is_read_failed(error);
    why = std::string(error.what()) + " (" + error.hint() + ")";
  } catch (const std::exception& error) {
    read_failed = true;
    why = error.what();
  }
  if (!why.empty()) problem_ = problem_text(why);
  return !read_failed;
}

std::shared_ptr<const LiveData> LiveFeed::read(std::string fingerprint) {
  std::vector<RunStatus> statuses;
  for (const std::string& run : runs_) statuses.push_back(run_status(run, Wait::kBrief));
  const bool all_read =
      make_report(statuses) && std::none_of(statuses.begin(), statuses.end(),
                                            [](const RunStatus& s) { return s.read_failed; });
  auto data = std::make_shared<LiveData>();
  data->live = live_json(statuses);
  data->report = report_;
  finish(*data);
  ++made_;
  fingerprint_ = all_read ? std::move(fingerprint) : "";
  return data;
}

void LiveFeed::make() {
  // Also after a failure the next read has to wait.
  struct Pause {
    LiveFeed& feed;
    const double started = thread_cpu_s();
    std::shared_ptr<const LiveData> data = nullptr;
    ~Pause() {
      const double took = thread_cpu_s() - started;
      const std::lock_guard lock(feed.mutex_);
      if (data) feed.current_ = std::move(data);
      feed.next_ = feed.now_() + std::chrono::duration_cast<Clock::duration>(
                                     std::chrono::duration<double>(pause_s(feed.every_s_, took)));
    }
  } pause{*this};
  try {
    std::string fingerprint = this->fingerprint();
    if (fingerprint != fingerprint_) pause.data = read(std::move(fingerprint));
  } catch (const std::exception& error) {
    fingerprint_.clear();
    std::shared_ptr<const LiveData> old;
    {
      const std::lock_guard lock(mutex_);
      old = current_;
    }
    if (!old) throw;
    pause.data = outdated(old, error);
  }
}

bool LiveFeed::is_busy() const {
  return making_.valid() && making_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

bool LiveFeed::is_making() {
  const std::lock_guard lock(mutex_);
  return is_busy();
}

bool LiveFeed::start() {
  try {
    making_ = std::async(std::launch::async, [this] { make(); }).share();
    return true;
  } catch (const std::system_error& error) {  // this process may have no more threads
    if (!current_) throw;
    fingerprint_.clear();
    current_ = outdated(current_, error);
    next_ = now_() +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(every_s_));
    return false;
  }
}

std::shared_ptr<const LiveData> LiveFeed::get() {
  std::shared_future<void> making;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    is_first = current_ == nullptr;
    const bool waits = making_.valid() && (is_busy() || now_() < next_);
    if (waits && !is_first) return current_;
    if (!waits && !start()) return current_;
    making = making_;
  }
  // Only the first data has no older one in its place: what kept it from being made is thrown, also
  // to who asks before it is tried again.
  if (is_first) {
    making.get();
  } else {
    making.wait_for(patience_);
  }
  const std::lock_guard lock(mutex_);
  return current_;
}

}  // namespace assay
