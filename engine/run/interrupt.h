// Ctrl-C and SIGTERM while training: the first asks for a checkpoint after the current step, the
// second kills.
#pragma once

namespace assay {

// Handles both signals while it lives; there is one at a time.
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
