#include "cuda/transfer.h"

#include <sched.h>
#include <time.h>

#include <chrono>
#include <cstring>

#include "base/check.h"
#include "cuda/context.h"

namespace assay {

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWatchEvery = std::chrono::milliseconds(1);
// A wait gives the core away between two looks; after this long it also naps.
constexpr auto kShortWait = std::chrono::milliseconds(2);
constexpr long kNapNanoseconds = 50000;

// The driver's own wait cannot be ended when another rank is gone.
void wait_and_watch(const gpu::Context& on) {
  const auto begin = Clock::now();
  auto next_watch = begin + kWatchEvery;
  while (!on.memory->done(on)) {
    const auto now = Clock::now();
    if (now >= next_watch) {
      on.watch->check();
      next_watch = now + kWatchEvery;
    }
    if (now - begin < kShortWait) {
      sched_yield();
      continue;
    }
    const timespec nap{0, kNapNanoseconds};
    nanosleep(&nap, nullptr);
  }
}

}  // namespace

void copy_bytes(Exec on, void* to, const void* from, size_t bytes) {
  if (bytes == 0) return;
  if (on.gpu) return on.gpu->memory->copy(*on.gpu, to, from, bytes);
  std::memcpy(to, from, bytes);
}

void wait(Exec on) {
  if (!on.gpu) return;
  on.gpu->watch ? wait_and_watch(*on.gpu) : on.gpu->memory->wait(*on.gpu);
}

void wait_for_launch(Exec on, const std::string& name) {
  try {
    wait(on);
  } catch (const UserError& error) {
    throw UserError(name + " failed: " + error.what(), error.hint());
  }
}

}  // namespace assay
