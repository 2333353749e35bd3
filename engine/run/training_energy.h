// Joules of training, as train_s has its seconds: without evaluations and saves. The counters are
// read when a step is logged and where training pauses, not in every step.
#pragma once

#include <functional>
#include <limits>

namespace assay {

// Of the CPUs of the machine and of the GPU that trains; NaN: no counter.
struct Energy {
  double cpu_joules = std::numeric_limits<double>::quiet_NaN();
  double gpu_joules = std::numeric_limits<double>::quiet_NaN();
};

class TrainingEnergy {
 public:
  // counters: what was used since any fixed moment, never less than before; may be empty.
  // before: of earlier processes of the run. NaN in either is NaN in total() from then on.
  TrainingEnergy(std::function<Energy()> counters, const Energy& before)
      : counters_(std::move(counters)), total_(before) {}

  // Training goes on from here; without effect if it already does.
  void go_on() {
    if (running_) return;
    running_ = true;
    last_ = read();
  }
  // Adds what was used since the last reading, up to here.
  void count() {
    if (!running_) return;
    const Energy now = read();
    total_.cpu_joules += now.cpu_joules - last_.cpu_joules;
    total_.gpu_joules += now.gpu_joules - last_.gpu_joules;
    last_ = now;
  }
  // What follows is not training.
  void pause() {
    count();
    running_ = false;
  }
  const Energy& total() const { return total_; }

 private:
  Energy read() const { return counters_ ? counters_() : Energy{}; }

  std::function<Energy()> counters_;
  Energy total_, last_;
  bool running_ = false;
};

}  // namespace assay
