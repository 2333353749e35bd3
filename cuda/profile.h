// Time by op, when Exec::profile is set: each op's public function opens a ProfileScope with its
// name and cost. An op called by another op counts towards the outer one. On a GPU a scope begins
// and ends with the stream idle, so the time includes launches, about 10 us per scope, and the host
// queues no work ahead.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <ostream>
#include <vector>

#include "base/cost.h"
#include "cuda/exec.h"
#include "cuda/transfer.h"

namespace assay {

class Profile {
 public:
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
  // Number of open scopes.
  int depth = 0;
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

class ProfileScope {
 public:
  ProfileScope(Exec on, const char* name, Cost cost = {})
      : on_(on), profile_(on.profile), name_(name), cost_(cost) {
    if (!profile_ || profile_->depth++ > 0) return;
    wait(on_);
    start_ = Clock::now();
  }
  ProfileScope(const ProfileScope&) = delete;
  ProfileScope& operator=(const ProfileScope&) = delete;
  ~ProfileScope() noexcept(false) {  // wait() throws if a kernel failed
    if (!profile_ || --profile_->depth > 0) return;
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
