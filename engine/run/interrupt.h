// Ctrl-C, SIGTERM, SIGQUIT, SIGHUP (a closed terminal) and SIGUSR1 (which mpirun and Slurm pass on)
// during training: the first signal requests a checkpoint after the current step, Ctrl-C, SIGTERM
// or SIGQUIT a second later kills the process. What comes sooner is taken for the same request: a
// key may bounce, and `timeout` sends its signal twice. A second SIGHUP never kills: a terminal
// that closes sends several.
#pragma once

#include <signal.h>

#include <atomic>
#include <cstdint>
#include <string_view>

namespace assay {

inline constexpr int kStopSignals[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP, SIGUSR1};

// Whether this is a signal of a terminal (SIGINT, SIGQUIT, SIGHUP) that is ignored, as nohup and a
// script's `command &` do. By convention it stays so.
bool stays_ignored(int signal);

// What is printed after the first signal.
inline constexpr std::string_view kStopping =
    "stopping after this step, with a checkpoint; to stop now press Ctrl-C again after a second";

// Tells requests to stop from echoes of the first one. Its functions may be called in a signal
// handler.
class StopRequests {
 public:
  enum class Kind { kFirst, kEcho, kAgain };
  Kind hear(int signal);
  void forget() { first_ms_ = 0; }

 private:
  std::atomic<int64_t> first_ms_ = 0;  // when the first one came; 0: none yet
};

// Handles the signals during its lifetime, and ignores SIGPIPE: a reader of the log that ends must
// not end the run. What stays_ignored() is left alone. At most one may exist at a time.
class Interrupt {
 public:
  // kWhatHappens: the first signal prints a line on stderr.
  enum class Say { kNothing, kWhatHappens };
  explicit Interrupt(Say say = Say::kWhatHappens);
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const { return signal() != 0; }
  int signal() const;  // the first of kStopSignals that came, or 0
};

}  // namespace assay
