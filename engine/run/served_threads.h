// Threads that write files of tensors from memory that they cannot read themselves: a GPU's, whose
// calls are all made by the thread that opened it (cuda/device.h). That thread serves them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>

#include "engine/run/safetensors.h"

namespace assay {

// Must outlive the futures.
class ServedThreads {
 public:
  ServedThreads() = default;
  ServedThreads(const ServedThreads&) = delete;
  ServedThreads& operator=(const ServedThreads&) = delete;

  std::future<WrittenFile> start(const std::function<WrittenFile()>& work);
  // For `work`: returns when serve() has made the call, and throws what it threw.
  void ask(const std::function<void()>& call);
  // Makes the calls until the work of every thread is done.
  void serve();

 private:
  class AtWork;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::packaged_task<void()>> asked_;
  int at_work_ = 0;
};

}  // namespace assay
