// Joules of training, as train_s has its seconds: of the steps alone. The counters are read where
// training pauses (after a logged step, for what is recorded of it) and goes on, and every few
// seconds at least: a CPU's begins again at 0 after some minutes of full power
// (machine/cpu_energy.h). Not in every step.
#pragma once

#include <chrono>
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
  // count(), if the last reading is older than that.
  void count_if_older_than(std::chrono::seconds age) {
    if (Clock::now() - read_at_ > age) count();
  }
  // What follows is not training.
  void pause() {
    count();
    running_ = false;
  }
  const Energy& total() const { return total_; }

 private:
  using Clock = std::chrono::steady_clock;

  Energy read() {
    read_at_ = Clock::now();
    return counters_ ? counters_() : Energy{};
  }

  std::function<Energy()> counters_;
  Clock::time_point read_at_;
  Energy total_, last_;
  bool running_ = false;
};

}  // namespace assay
