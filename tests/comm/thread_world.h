// Ranks as threads of one process: their letters go through boxes in memory, and a test may lose,
// change or hold back any of them. Without groups.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "comm/world.h"

namespace assay {

// The boxes of all ranks; copies are the same boxes.
class ThreadPost {
 public:
  explicit ThreadPost(int ranks) : shared_(std::make_shared<Shared>()) {
    shared_->boxes.resize(size_t(ranks));
  }
  int size() const { return int(shared_->boxes.size()); }

  // Sees each letter before it is in its box, under a lock, and may change it.
  enum class Fate { kArrives, kIsLost, kFails };
  using Fault = std::function<Fate(int from, int to, std::string& text)>;
  void set_fault(Fault fault) {
    const std::lock_guard lock(shared_->mutex);
    shared_->fault = std::move(fault);
  }
  // From now on letters to this rank stay where they are, in their order.
  void hold(int rank) { set_state(rank, State::kHeld); }
  // From now on this rank's receive() does not return, as a call of MPI whose other side is gone.
  void hang(int rank) { set_state(rank, State::kHangs); }
  void let_go(int rank) { set_state(rank, State::kOpen); }

  void send(int from, int to, std::string_view text) {
    const std::lock_guard lock(shared_->mutex);
    std::string letter(text);
    const Fate fate = shared_->fault ? shared_->fault(from, to, letter) : Fate::kArrives;
    if (fate == Fate::kFails) throw UserError("the line is cut", "none");
    if (fate == Fate::kArrives) box(to).letters.push_back({from, std::move(letter)});
  }
  std::optional<Mail::Letter> receive(int rank) {
    std::unique_lock lock(shared_->mutex);
    Box& from = box(rank);
    shared_->changed.wait(lock, [&] { return from.state != State::kHangs; });
    if (from.state == State::kHeld || from.letters.empty()) return std::nullopt;
    Mail::Letter letter = std::move(from.letters.front());
    from.letters.pop_front();
    return letter;
  }

 private:
  enum class State { kOpen, kHeld, kHangs };
  struct Box {
    std::deque<Mail::Letter> letters;
    State state = State::kOpen;
  };
  void set_state(int rank, State state) {
    {
      const std::lock_guard lock(shared_->mutex);
      box(rank).state = state;
    }
    shared_->changed.notify_all();
  }
  Box& box(int rank) {
    CHECK(rank >= 0 && rank < size(), "a letter for rank %d of %d", rank, size());
    return shared_->boxes[size_t(rank)];
  }

  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<Box> boxes;
    Fault fault;
  };
  std::shared_ptr<Shared> shared_;
};

class ThreadMail final : public Mail {
 public:
  ThreadMail(ThreadPost post, int rank) : post_(std::move(post)), rank_(rank) {}
  void send(int to, std::string_view text) override { post_.send(rank_, to, text); }
  std::optional<Letter> receive() override { return post_.receive(rank_); }

 private:
  ThreadPost post_;
  const int rank_;
};

// One for each thread.
class ThreadWorld final : public World {
 public:
  ThreadWorld(ThreadPost post, int rank) : post_(std::move(post)), rank_(rank) {}
  int size() const override { return post_.size(); }
  int rank() const override { return rank_; }
  int node_ranks() const override { return post_.size(); }
  int node_rank() const override { return rank_; }
  int node() const override { return 0; }
  std::unique_ptr<Group> group(int, std::function<void()>) override {
    throw std::logic_error("a ThreadWorld has no groups");
  }
  std::unique_ptr<Mail> mail() override { return std::make_unique<ThreadMail>(post_, rank_); }
  [[noreturn]] void abort(int code) override {
    throw std::logic_error("abort with " + std::to_string(code));
  }

 private:
  ThreadPost post_;
  const int rank_;
};

}  // namespace assay
