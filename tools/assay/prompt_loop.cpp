#include "tools/assay/prompt_loop.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <optional>

#include "base/check.h"
#include "engine/run/interrupt.h"

namespace assay {
namespace {

std::atomic<bool> stop_requested = false;
static_assert(std::atomic<bool>::is_always_lock_free, "used in a signal handler");

void on_interrupt(int number) {
  if (stop_requested.exchange(true)) {
    signal(number, SIG_DFL);
    raise(number);
  }
}

// Takes Ctrl-C during its lifetime, unless it is ignored.
class CtrlC {
 public:
  CtrlC() {
    stop_requested = false;
    sigaction(SIGINT, nullptr, &before_);
    if (stays_ignored(SIGINT)) return;
    struct sigaction action = {};
    action.sa_handler = on_interrupt;
    action.sa_flags = SA_RESTART;  // for a write to a slow terminal; ppoll() is never restarted
    sigemptyset(&action.sa_mask);
    sigaction(SIGINT, &action, nullptr);
  }
  CtrlC(const CtrlC&) = delete;
  CtrlC& operator=(const CtrlC&) = delete;
  ~CtrlC() { sigaction(SIGINT, &before_, nullptr); }

 private:
  struct sigaction before_ = {};
};

void print(const char* text) {
  std::fputs(text, stdout);
  std::fflush(stdout);
}

// Waits for input or Ctrl-C; returns what ppoll() does. Ctrl-C is taken only while it waits, so one
// that comes just before is not missed.
int wait_for_input() {
  sigset_t interrupt, before;
  sigemptyset(&interrupt);
  sigaddset(&interrupt, SIGINT);
  sigprocmask(SIG_BLOCK, &interrupt, &before);
  pollfd input = {.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
  const int ready = stop_requested ? -1 : ppoll(&input, 1, nullptr, &before);
  const int error = stop_requested ? EINTR : errno;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  errno = error;
  return ready;
}

// A line without its end; nothing at the end of the input.
std::optional<std::string> read_line() {
  constexpr const char* kPrompt = "> ";
  std::string line;
  print(kPrompt);
  for (;;) {
    char bytes[4096];
    const int ready = wait_for_input();
    const ssize_t count = ready < 0 ? ready : read(STDIN_FILENO, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) {
      if (!stop_requested.exchange(false)) continue;
      line.clear();
      print("\n");
      print(kPrompt);
    } else if (count < 0) {
      throw UserError(std::string("cannot read from the terminal: ") + std::strerror(errno),
                      "start assay sample --interactive in the foreground of a terminal");
    } else if (count == 0) {  // Ctrl-D; within a line it only hands over what is typed so far
      print("\n");
      if (line.empty()) return std::nullopt;
      return line;
    } else {
      line.append(bytes, size_t(count));
      if (line.back() != '\n') continue;
      line.pop_back();
      return line;
    }
  }
}

}  // namespace

bool on_terminal() {
  return isatty(STDIN_FILENO) == 1 && isatty(STDOUT_FILENO) == 1;
}

void run_prompt_loop(
    const std::function<void(const std::string& line, const StopRequested& stop)>& answer) {
  const CtrlC ctrl_c;
  for (;;) {
    const std::optional<std::string> line = read_line();
    if (!line || line->empty()) return;
    stop_requested = false;
    try {
      answer(*line, [] { return stop_requested.load(); });
    } catch (const UserError& error) {
      std::fprintf(stderr, "error: %s\nhint: %s\n", error.what(), error.hint().c_str());
    }
    stop_requested = false;
  }
}

}  // namespace assay
