// A run's progress: one line per logged step, and a bar with the time left.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace assay {

struct StepLine {
  int64_t step = 0;  // done, from 1
  int64_t steps = 0;
  double loss = 0;
  double lr = 0;
  double grad_norm = 0;
  double step_ms = 0;
  double tokens_per_s = 0;
  std::optional<double> mfu_percent = {};
  // MoE only. load: E * max_load of the layer with the largest; min_entropy: the smallest entropy
  // of a layer; entropy_ceiling: ln E.
  std::optional<double> load = {};
  double min_entropy = 0;
  double entropy_ceiling = 0;
  double seconds_left = 0;
  uint32_t hash = 0;
};

// One line: step 120/9536 1.3% loss 4.812 lr 8.5e-04 norm 0.71 1200 ms 437k tok/s mfu 45%
// load 1.31x (min-H 4.02/4.16) eta 3h08m #1f09c3aa
std::string step_line(const StepLine& line);
// The same for a terminal of 80 columns:
// step 120/9536 loss 4.812 lr 8.5e-04 437k tok/s load 1.31x eta 3h08m #1f09c3aa
std::string short_step_line(const StepLine& line);

// NaN without its sign, which printf would write ("-nan"); other values as they are.
double unsigned_nan(double value);
// 45s, 12m05s, 3h08m, 2d03h
std::string duration_text(double seconds);
// 437k, 1.2M, 950
std::string count_text(double count);

// [#####.....] 1.3% 120/9536 eta 3h08m, at most `columns` wide.
std::string progress_bar(int64_t done, int64_t total, double seconds_left, int columns);

// Estimates the time left from a moving mean of the step times, so that the slow first steps of a
// launch (caches, page faults) lose weight.
class Eta {
 public:
  void step_took(double seconds);
  // NaN before the first step.
  double seconds_left(int64_t steps) const;

 private:
  double mean_ = 0;
  int64_t seen_ = 0;
};

}  // namespace assay
