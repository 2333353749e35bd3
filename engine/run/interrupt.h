// Ctrl-C, SIGTERM, SIGHUP (a closed terminal) and SIGUSR1 (which mpirun and Slurm pass on) during
// training: the first signal requests a checkpoint after the current step, a second Ctrl-C or
// SIGTERM kills the process. A second SIGHUP does not: a terminal that closes sends several.
#pragma once

#include <string_view>

namespace assay {

// What is printed after the first signal.
inline constexpr std::string_view kStopping =
    "stopping after this step, with a checkpoint; press Ctrl-C again to stop now";

// Handles the signals during its lifetime, and ignores SIGPIPE: a reader of the log that ends must
// not end the run. SIGHUP stays ignored where it was (nohup). At most one may exist at a time.
class Interrupt {
 public:
  // kWhatHappens: the first signal prints a line on stderr.
  enum class Say { kNothing, kWhatHappens };
  explicit Interrupt(Say say = Say::kWhatHappens);
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const { return signal() != 0; }
  int signal() const;  // SIGINT, SIGTERM, SIGHUP, SIGUSR1, or 0
};

}  // namespace assay
