#include "engine/run/interrupt.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

#include "base/check.h"

namespace assay {
namespace {

std::atomic<int> requested_signal = 0;
static_assert(std::atomic<int>::is_always_lock_free, "used in a signal handler");
std::atomic<bool> alive = false;
struct sigaction before_int, before_term;

void on_signal(int number) {
  if (requested_signal.exchange(number) != 0) {  // the second one
    ::signal(number, SIG_DFL);
    raise(number);
    return;
  }
  constexpr char kMessage[] =
      "\nstopping after this step, with a checkpoint; a second signal stops at once\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
}

}  // namespace

Interrupt::Interrupt() {
  CHECK(!alive.exchange(true), "two Interrupts at a time");
  requested_signal = 0;
  struct sigaction action = {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigaction(SIGINT, &action, &before_int);
  sigaction(SIGTERM, &action, &before_term);
}

Interrupt::~Interrupt() {
  sigaction(SIGINT, &before_int, nullptr);
  sigaction(SIGTERM, &before_term, nullptr);
  alive = false;
}

int Interrupt::signal() const {
  return requested_signal;
}

}  // namespace assay
