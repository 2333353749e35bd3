// A rank of the launch is silent, stuck, or has given up: its part of the run's state is gone, and
// the run ends. Thrown on every rank that still runs, with the same message (comm/control.h).
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace assay {

class RankLost : public std::runtime_error {
 public:
  RankLost(int rank, const std::string& message, std::string hint)
      : std::runtime_error(message), rank_(rank), hint_(std::move(hint)) {}
  int rank() const { return rank_; }
  const std::string& hint() const { return hint_; }

 private:
  int rank_;
  std::string hint_;
};

// The exit code of a program whose run ended so: the same command may go on.
inline constexpr int kRankLostExit = 4;

}  // namespace assay
