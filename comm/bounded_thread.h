// A thread that is not waited for when it hangs: in a call of MPI whose other side is gone, or in a
// write to a disk. What it uses must live as long as it does: give it a shared_ptr.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <chrono>
#include <future>
#include <thread>
#include <utility>

namespace assay {

class BoundedThread {
 public:
  // Signals stay with the other threads: an interrupt must wake a wait of the main one.
  template <typename Body>
  explicit BoundedThread(Body body) {
    std::packaged_task<void()> task(std::move(body));
    ended_ = task.get_future();
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread(std::move(task));
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~BoundedThread() { end_within(std::chrono::seconds(0)); }
  BoundedThread(const BoundedThread&) = delete;
  BoundedThread& operator=(const BoundedThread&) = delete;

  // Whether it ended in time; one that did not is left alone.
  bool end_within(std::chrono::duration<double> time) {
    if (!thread_.joinable()) return true;
    const bool ended = ended_.wait_for(time) == std::future_status::ready;
    ended ? thread_.join() : thread_.detach();
    return ended;
  }

 private:
  std::future<void> ended_;
  std::thread thread_;
};

}  // namespace assay
