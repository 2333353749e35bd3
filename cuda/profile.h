// Time by op, when Exec::profile is set: each op's public function opens a ProfileScope with its
// name and cost. An op called by another op counts towards the outer one.
//
// On a GPU there are two kinds of profile. By waits: a scope begins and ends with the stream idle,
// so the time includes launches, about 10 us per scope, and the host queues no work ahead. By
// events: nothing waits, calls are recorded and replayed as without a profile (cuda/graph.h), and
// settle() reads the times.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <vector>

#include "base/cost.h"
#include "cuda/event_spans.h"
#include "cuda/exec.h"
#include "cuda/transfer.h"

namespace assay {

class Profile {
 public:
  Profile() = default;  // by waits
  // By events on the stream of `on`; null, the CPU: by waits.
  explicit Profile(const gpu::Context* on) {
    if (on != nullptr) spans_ = std::make_unique<gpu::EventSpans>(*on);
  }
  gpu::EventSpans* by_events() const { return spans_.get(); }  // null: by waits
  struct Entry {
    const char* name;
    int64_t calls;
    double seconds;
    Cost cost;
  };
  void add(const char* name, double seconds, Cost cost) {
    for (Entry& e : entries_) {
      if (std::strcmp(e.name, name) != 0) continue;
      e.calls += 1;
      e.seconds += seconds;
      e.cost = e.cost + cost;
      return;
    }
    entries_.push_back({name, 1, seconds, cost});
  }
  void clear() { entries_.clear(); }
  // By events: waits, and adds the spans since the last time.
  void settle(Exec on) {
    if (!spans_) return;
    wait(on);
    add(spans_->take());
  }
  // Waits for a replay, and adds the spans of its recording.
  void add_replay(Exec on, const std::vector<gpu::EventSpan>& recorded) {
    wait(on);
    add(recorded);
  }
  // Number of open scopes.
  int depth = 0;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  void add(const std::vector<gpu::EventSpan>& spans) {
    for (const gpu::EventSpan& span : spans) add(span.name, spans_->seconds(span), span.cost);
  }
  std::unique_ptr<gpu::EventSpans> spans_;
  std::vector<Entry> entries_;
};

class ProfileScope {
 public:
  ProfileScope(Exec on, const char* name, Cost cost = {})
      : on_(on), profile_(on.profile), name_(name), cost_(cost) {
    if (!profile_ || profile_->depth++ > 0) return;
    if (profile_->by_events()) {
      profile_->by_events()->begin(*on_.gpu, name, cost);
      return;
    }
    wait(on_);
    start_ = Clock::now();
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;
  ~ProfileScope() noexcept(false) {  // wait() throws if a kernel failed
    if (!profile_ || --profile_->depth > 0) return;
    if (profile_->by_events()) {
      profile_->by_events()->end(*on_.gpu);
      return;
    }
    wait(on_);
    profile_->add(name_, std::chrono::duration<double>(Clock::now() - start_).count(), cost_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  Exec on_;
  Profile* profile_;
  const char* name_;
  Cost cost_;
  Clock::time_point start_;
};

}  // namespace assay
