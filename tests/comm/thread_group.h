// A group of ranks that are threads of one process, for tests: host memory only.
//
//   std::vector<std::string> failed = run_ranks(4, [](Group& ranks) { ... });  // "" where none
#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "comm/group.h"

namespace assay {

// What the members of one group share. A call of all members: each shows what it gives, all take
// what is theirs, and nobody leaves before all have taken.
class ThreadMeeting {
 public:
  explicit ThreadMeeting(int size) : size_(size), shown_(size_t(size)) {}

  int size() const { return size_; }
  const void* shown(int rank) const { return shown_[size_t(rank)]; }

  // take() runs when all members have shown. UserError if a member has left for good.
  template <typename Take>
  void meet(int rank, const void* show, Take&& take) {
    shown_[size_t(rank)] = show;
    wait_for_all();
    take();
    wait_for_all();
  }
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    if (left_ < 0) left_ = rank;
    changed_.notify_all();
  }

 private:
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    const int64_t round = round_;
    if (++here_ == size_) {
      here_ = 0;
      ++round_;
      changed_.notify_all();
      return;
    }
    changed_.wait(lock, [&] { return round_ != round || left_ >= 0; });
    if (round_ == round) throw UserError(strprintf("rank %d has left", left_), "see its error");
  }

  const int size_;
  std::vector<const void*> shown_;  // of each rank
  std::mutex mutex_;
  std::condition_variable changed_;
  int here_ = 0, left_ = -1;
  int64_t round_ = 0;
};

class ThreadGroup final : public Group {
 public:
  ThreadGroup(ThreadMeeting& meeting, int rank) : Group(meeting.size(), rank), meeting_(meeting) {}

 protected:
  void gather(Exec, void* all, const void* mine, size_t bytes) override {
    const std::string own(static_cast<const char*>(mine), bytes);  // `mine` may be a row of `all`
    meeting_.meet(rank(), own.data(), [&] {
      for (int r = 0; r < size(); ++r) copy(all, size_t(r) * bytes, r, 0, bytes);
    });
  }
  void exchange_rows(Exec, void* to, const void* from, size_t bytes) override {
    meeting_.meet(rank(), from, [&] {
      for (int r = 0; r < size(); ++r)
        copy(to, size_t(r) * bytes, r, size_t(rank()) * bytes, bytes);
    });
  }
  void exchange_runs(Exec, const Exchange& exchange) override {
    meeting_.meet(rank(), &exchange, [&] {
      for (int r = 0; r < size(); ++r) {
        const auto& other = *static_cast<const Exchange*>(meeting_.shown(r));
        const Run sent = other.sent[size_t(rank())], received = exchange.received[size_t(r)];
        CHECK(sent.bytes == received.bytes, "rank %d sends %zu bytes to rank %d, which expects %zu",
              r, sent.bytes, rank(), received.bytes);
        if (sent.bytes == 0) continue;
        std::memcpy(static_cast<char*>(exchange.to) + received.offset,
                    static_cast<const char*>(other.from) + sent.offset, sent.bytes);
      }
    });
  }
  void add_integers(Exec, View<int64_t, 1> x) override {
    const std::vector<int64_t> own(x.data, x.data + x.dim[0]);
    meeting_.meet(rank(), own.data(), [&] {
      for (int64_t i = 0; i < x.dim[0]; ++i) {
        uint64_t sum = 0;
        for (int r = 0; r < size(); ++r)
          sum += uint64_t(static_cast<const int64_t*>(meeting_.shown(r))[i]);
        x.data[i] = int64_t(sum);
      }
    });
  }

 private:
  void copy(void* to, size_t at, int rank, size_t from, size_t bytes) const {
    std::memcpy(static_cast<char*>(to) + at, static_cast<const char*>(meeting_.shown(rank)) + from,
                bytes);
  }

  ThreadMeeting& meeting_;
};

// Runs `work` on `ranks` threads. Returns the message of the UserError that each one ended with, ""
// if with none; the others are then told that it has left.
inline std::vector<std::string> run_ranks(int ranks, const std::function<void(Group&)>& work) {
  ThreadMeeting meeting(ranks);
  std::vector<std::string> failed(static_cast<size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      ThreadGroup group(meeting, rank);
      try {
        work(group);
      } catch (const UserError& error) {
        failed[size_t(rank)] = error.what();
        meeting.leave(rank);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return failed;
}

}  // namespace assay
