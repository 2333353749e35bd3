// Ctrl-C and SIGTERM during training: the first signal requests a checkpoint after the current
// step, the second kills the process.
#pragma once

namespace assay {

// Handles both signals during its lifetime. At most one may exist at a time.
class Interrupt {
 public:
  Interrupt();
  Interrupt(const Interrupt&) = delete;
  Interrupt& operator=(const Interrupt&) = delete;
  ~Interrupt();

  bool requested() const { return signal() != 0; }
  int signal() const;  // SIGINT, SIGTERM, or 0
};

}  // namespace assay
