#include "comm/control.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "comm/bounded_thread.h"
#include "comm/last_words.h"

namespace assay {

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

// Together they are below the 5 s of the destructor.
constexpr Seconds kPassOn{3}, kThreadEnds{1};
constexpr Seconds kFileEvery{1};
constexpr Seconds kNap{0.04};
// Of end_after_loss().
constexpr Seconds kOthersWrite{1}, kAbortEnds{3}, kWaitForAbort{4};

Clock::time_point after(Seconds time) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(time);
}

// What MPI and a thread that hangs may still use lives as long as the process.
void keep_forever(std::shared_ptr<void> object) {
  static std::mutex mutex;
  static auto* const kept = new std::vector<std::shared_ptr<void>>;
  const std::lock_guard lock(mutex);
  kept->push_back(std::move(object));
}

static_assert(std::atomic<const char*>::is_always_lock_free &&
              std::atomic<int64_t>::is_always_lock_free &&
              std::atomic<uint64_t>::is_always_lock_free);

}  // namespace

// What the rank and the thread of its control share. The thread may outlive the Control.
struct Control::Shared {
  Shared(World& world, Times times, std::string me)
      : rank(world.rank()),
        beat_s(times.beat_s),
        mail(world.mail()),
        watch(*mail, world.size(), world.rank(), times, std::move(me)) {}

  const int rank;
  const double beat_s;

  // The thread's alone.
  std::unique_ptr<Mail> mail;
  Watch watch;
  std::optional<LastWordsFile> file;

  // The word of this rank.
  std::atomic<const char*> what{"start"};
  std::atomic<int64_t> step{0};
  std::atomic<uint64_t> call{0};
  std::atomic<Pace> pace{Pace::kSteady};

  std::mutex mutex;  // of what follows
  std::condition_variable changed;
  bool leaving = false, stop = false;
  bool news = false;  // for the thread, which does not nap then
  std::optional<Watch::Reason> gives_up;
  std::optional<Watch::Outcome> outcome;
  bool passed_on = false;
  std::function<void(const RankLost&)> end;  // of a process that is held up; null: it looks
  // Behind a store of true `outcome` stays as it is, and may be read without the mutex.
  std::atomic<bool> lost{false};
  Clock::time_point published;  // when `outcome` was
  // Until when to wait for passed_on, from the first reason to wait.
  std::optional<Clock::time_point> pass_on_ends;

  void run();
  void round(double now_s);
  void publish(const Watch::Outcome& how);
  std::optional<RankLost> held_up(Clock::time_point now) const;
  void wait_until_passed_on(std::unique_lock<std::mutex>& lock);
};

void Control::Shared::publish(const Watch::Outcome& how) {
  if (outcome) return;
  outcome = how;
  published = Clock::now();
  lost.store(how.rank >= 0, std::memory_order_release);
}

// Why this process is to be ended by the control's thread.
std::optional<RankLost> Control::Shared::held_up(Clock::time_point now) const {
  if (!end || !outcome || outcome->rank < 0 || pace == Pace::kSlow) return std::nullopt;
  if (now - published < Seconds(kHeldUp)) return std::nullopt;
  return RankLost(outcome->rank, outcome->message, outcome->hint);
}

void Control::Shared::wait_until_passed_on(std::unique_lock<std::mutex>& lock) {
  if (!pass_on_ends) pass_on_ends = after(kPassOn);
  changed.wait_until(lock, *pass_on_ends, [&] { return passed_on; });
}

void Control::Shared::round(double now_s) {
  LastWord own;
  own.what = what.load(std::memory_order_relaxed);
  own.step = step.load(std::memory_order_relaxed);
  own.call = call.load(std::memory_order_relaxed);
  const Pace now = pace.load(std::memory_order_relaxed);
  own.slow = now == Pace::kSlow;
  own.reading = now == Pace::kReading;
  std::optional<Watch::Reason> reason;
  bool queued = false;
  {
    const std::lock_guard lock(mutex);
    own.leaving = leaving;
    reason = gives_up;
    queued = end != nullptr;
  }
  if (queued) watch.calls_are_queued();
  watch.round(now_s, std::move(own), reason);
  const std::lock_guard lock(mutex);
  if (watch.outcome()) publish(*watch.outcome());
  passed_on = watch.passed_on();
  if (outcome) changed.notify_all();
}

void Control::Shared::run() {
  const auto begin = Clock::now();
  const Seconds nap = std::min(kNap, Seconds(beat_s / 8));
  auto next_file = begin;
  bool ended = false;  // the file has the words of the end
  while (true) {
    const auto now = Clock::now();
    round(Seconds(now - begin).count());
    const bool ends = watch.outcome().has_value();
    if (file && (now >= next_file || ends != ended)) {
      file->put(watch.words());
      next_file = after(kFileEvery);
      ended = ends;
    }
    std::unique_lock lock(mutex);
    if (stop) return;
    if (const auto loss = held_up(now)) {
      const auto end_process = end;
      lock.unlock();
      end_process(*loss);
      return;
    }
    changed.wait_for(lock, nap, [&] { return news; });
    news = false;
  }
}

Control::Control(World& world, Times times, std::string me, const std::string& folder)
    : shared_(std::make_shared<Shared>(world, times, std::move(me))) {
  if (world.rank() == 0 && !folder.empty()) shared_->file.emplace(folder);
  thread_.emplace([shared = shared_] {
    try {
      shared->run();
    } catch (const std::exception& error) {  // memory, a bug: the others will miss this rank
      const std::lock_guard lock(shared->mutex);
      shared->publish(
          {shared->rank,
           "the control of rank " + std::to_string(shared->rank) + " has failed: " + error.what(),
           "see its output"});
      shared->passed_on = true;
      shared->changed.notify_all();
    }
  });
}

void Control::doing(const char* what, int64_t step, uint64_t call, Pace pace) noexcept {
  shared_->what.store(what, std::memory_order_relaxed);
  shared_->step.store(step, std::memory_order_relaxed);
  shared_->call.store(call, std::memory_order_relaxed);
  shared_->pace.store(pace, std::memory_order_relaxed);
}

void Control::calls_are_queued(std::function<void(const RankLost&)> end) {
  const std::lock_guard lock(shared_->mutex);
  shared_->end = std::move(end);
}

void Control::require_all_there() const {
  if (!shared_->lost.load(std::memory_order_acquire)) return;
  const Watch::Outcome& outcome = *shared_->outcome;
  throw RankLost(outcome.rank, outcome.message, outcome.hint);
}

void Control::give_up(const std::string& why, const std::string& hint) noexcept {
  try {
    std::unique_lock lock(shared_->mutex);
    if (!shared_->gives_up) shared_->gives_up = {why, hint};
    shared_->news = true;
    shared_->changed.notify_all();
    shared_->wait_until_passed_on(lock);
  } catch (const std::exception&) {  // no memory: the others find out by this rank's silence
  }
}

void Control::finish() {
  {
    std::unique_lock lock(shared_->mutex);
    shared_->leaving = true;
    shared_->news = true;
    shared_->changed.notify_all();
    shared_->changed.wait(lock, [&] { return shared_->outcome.has_value(); });
    if (!shared_->lost) shared_->wait_until_passed_on(lock);
  }
  require_all_there();
}

Control::~Control() {
  bool told = false, in_order = false;
  {
    const std::lock_guard lock(shared_->mutex);
    told = shared_->outcome || shared_->gives_up;
  }
  if (!told && std::uncaught_exceptions() > exceptions_) {
    give_up("it ended by an error", "see its output");
  } else if (!told) {
    try {
      finish();
    } catch (const RankLost&) {
    }
  }
  {
    std::unique_lock lock(shared_->mutex);
    shared_->wait_until_passed_on(lock);
    in_order = shared_->outcome && shared_->outcome->rank < 0;
    shared_->stop = true;
    shared_->news = true;
    shared_->changed.notify_all();
  }
  if (thread_->end_within(kThreadEnds)) {
    shared_->file.reset();
  } else {
    in_order = false;
  }
  if (!in_order) keep_forever(shared_);
}

void end_after_loss(World& world, int lost_rank, int code) {
  const bool aborts = world.rank() == (lost_rank == 0 && world.size() > 1 ? 1 : 0);
  const Seconds wait = aborts ? kOthersWrite : kWaitForAbort;
  // Flushing into a full pipe may hang, and so may MPI.
  std::thread([=] {
    std::this_thread::sleep_for(wait + kAbortEnds);
    _exit(code);
  }).detach();
  std::fflush(nullptr);
  std::this_thread::sleep_for(wait);
  world.abort(code);
  _exit(code);
}

}  // namespace assay
