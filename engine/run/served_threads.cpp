#include "engine/run/served_threads.h"

#include <memory>
#include <system_error>
#include <utility>

namespace assay {

// Counts a thread until its work is done, however it ends.
class ServedThreads::AtWork {
 public:
  explicit AtWork(ServedThreads& threads) : threads_(threads) {
    const std::lock_guard lock(threads_.mutex_);
    threads_.at_work_ += 1;
  }
  AtWork(const AtWork&) = delete;
  AtWork& operator=(const AtWork&) = delete;
  ~AtWork() {
    const std::lock_guard lock(threads_.mutex_);
    threads_.at_work_ -= 1;
    threads_.changed_.notify_all();
  }

 private:
  ServedThreads& threads_;
};

std::future<WrittenFile> ServedThreads::start(const std::function<WrittenFile()>& work) {
  auto here = std::make_shared<AtWork>(*this);  // before serve() looks
  try {
    return std::async(std::launch::async, [work, here = std::move(here)]() mutable {
      const std::shared_ptr<AtWork> until_done = std::move(here);
      return work();
    });
  } catch (const std::system_error&) {  // no thread: those that have one must not wait for ever
    serve();
    throw;
  }
}

void ServedThreads::ask(const std::function<void()>& call) {
  std::packaged_task<void()> task(call);
  std::future<void> done = task.get_future();
  {
    const std::lock_guard lock(mutex_);
    asked_.push_back(std::move(task));
    changed_.notify_all();
  }
  done.get();
}

void ServedThreads::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return !asked_.empty() || at_work_ == 0; });
    if (asked_.empty()) return;
    std::packaged_task<void()> task = std::move(asked_.front());
    asked_.pop_front();
    lock.unlock();
    task();
    lock.lock();
  }
}

}  // namespace assay
