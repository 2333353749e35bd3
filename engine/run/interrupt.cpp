#include "engine/run/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <iterator>

#include "base/check.h"

namespace assay {
namespace {

std::atomic<int> requested_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");
std::atomic<bool> alive = false, says = true;
constexpr int kHandled[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGPIPE};
struct sigaction before[std::size(kHandled)];

void on_signal(int number) {
  const bool second = requested_signal.exchange(number) != 0;
  if (second && (number == SIGHUP || number == SIGUSR1)) return;
  if (second) {
    ::signal(number, SIG_DFL);
    raise(number);
    return;
  }
  if (!says) return;
  for (const std::string_view text : {std::string_view("\n"), kStopping, std::string_view("\n")}) {
    [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
  }
}

}  // namespace

Interrupt::Interrupt(Say say) {
  CHECK(!alive.exchange(true), "two Interrupts at a time");
  requested_signal = 0;
  says = say == Say::kWhatHappens;
  struct sigaction action = {};
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  for (size_t i = 0; i < std::size(kHandled); ++i) {
    sigaction(kHandled[i], nullptr, &before[i]);
    if (kHandled[i] == SIGHUP && before[i].sa_handler == SIG_IGN) continue;
    action.sa_handler = kHandled[i] == SIGPIPE ? SIG_IGN : on_signal;
    sigaction(kHandled[i], &action, nullptr);
  }
}

Interrupt::~Interrupt() {
  for (size_t i = 0; i < std::size(kHandled); ++i) sigaction(kHandled[i], &before[i], nullptr);
  alive = false;
}

int Interrupt::signal() const {
  return requested_signal;
}

}  // namespace assay
