// Shows the progress of a long command on stderr: a bar on a terminal; in a pipe or file a line for
// every ten percent, at most one per second.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace assay {

// The unit of the counts shown: `name` for `size` counts.
struct ProgressUnit {
  const char* name = "MB";
  double size = 1e6;
};

class Progress {
 public:
  // total 0: unknown, only the count is shown. after: shows nothing before that time, for work that
  // is usually short.
  Progress(std::string what, int64_t total, ProgressUnit unit = {},
           std::chrono::milliseconds after = {});
  ~Progress();  // ends the bar's line
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  void update(int64_t done);
  double seconds() const;

 private:
  std::string line(int64_t done) const;

  std::string what_;
  int64_t total_;
  ProgressUnit unit_;
  std::chrono::milliseconds after_;
  bool terminal_;
  bool shown_ = false;
  int tenth_ = 0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point last_ = start_;
};

}  // namespace assay
