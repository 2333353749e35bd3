#include "engine/run/interrupt.h"

#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <iterator>

#include "base/check.h"

namespace assay {
namespace {

constexpr int64_t kEchoMs = 1000;

StopRequests requests;
std::atomic<int> requested_signal = 0;
static_assert(std::atomic<int64_t>::is_always_lock_free, "used in a signal handler");
std::atomic<bool> alive = false, says = true;
struct sigaction before[std::size(kStopSignals)], before_pipe;

int64_t now_ms() {
  timespec now = {};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{now.tv_sec} * 1000 + now.tv_nsec / 1'000'000 + 1;  // never 0
}

void on_signal(int number) {
  switch (requests.hear(number)) {
    case StopRequests::Kind::kEcho:
      return;
    case StopRequests::Kind::kAgain:
      ::signal(number, SIG_DFL);
      raise(number);
      return;
    case StopRequests::Kind::kFirst:
      break;
  }
  requested_signal = number;
  if (!says) return;
  for (const std::string_view text : {std::string_view("\n"), kStopping, std::string_view("\n")}) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  }
}

}  // namespace

bool stays_ignored(int signal) {
  if (signal != SIGINT && signal != SIGQUIT && signal != SIGHUP) return false;
  struct sigaction now = {};
  sigaction(signal, nullptr, &now);
  return now.sa_handler == SIG_IGN;
}

StopRequests::Kind StopRequests::hear(int signal) {
  const int64_t now = now_ms();
  int64_t first = 0;
  if (first_ms_.compare_exchange_strong(first, now)) return Kind::kFirst;
  const bool never_kills = signal == SIGHUP || signal == SIGUSR1;
  return never_kills || now - first < kEchoMs ? Kind::kEcho : Kind::kAgain;
}

Interrupt::Interrupt(Say say) {
  CHECK(!alive.exchange(true), "two Interrupts at a time");
  requests.forget();
  requested_signal = 0;
  says = say == Say::kWhatHappens;
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  action.sa_handler = on_signal;
  for (size_t i = 0; i < std::size(kStopSignals); ++i) {
    struct sigaction now = {};
    sigaction(kStopSignals[i], nullptr, &now);
    if (now.sa_handler != on_signal) before[i] = now;
    if (stays_ignored(kStopSignals[i])) continue;
    sigaction(kStopSignals[i], &action, nullptr);
  }
  action.sa_handler = SIG_IGN;
  sigaction(SIGPIPE, &action, &before_pipe);
}

Interrupt::~Interrupt() {
  // An echo may still come: it must not change the exit code.
  if (!requested()) {
    for (size_t i = 0; i < std::size(kStopSignals); ++i) {
      sigaction(kStopSignals[i], &before[i], nullptr);
    }
  }
  sigaction(SIGPIPE, &before_pipe, nullptr);
  alive = false;
}

int Interrupt::signal() const {
  return requested_signal;
}

}  // namespace assay
