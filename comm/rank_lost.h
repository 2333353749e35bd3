// A rank of the launch is silent, stuck, or has given up: its part of the run's state is gone, and
// the run ends. Thrown on every rank that still runs, with the same message (comm/control.h).
#pragma once

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace assay {

// In the message about a rank that gave up, before its reason.
inline constexpr std::string_view kGaveUp = " gave up: ";

class RankLost : public std::runtime_error {
 public:
  RankLost(int rank, const std::string& message, std::string hint)
      : std::runtime_error(message), rank_(rank), hint_(std::move(hint)) {}
  int rank() const { return rank_; }
  const std::string& hint() const { return hint_; }
  // The rank itself said so: it has written why, if it is the first one.
  bool gave_up() const { return std::string_view(what()).find(kGaveUp) != std::string_view::npos; }

 private:
  int rank_;
  std::string hint_;
};

// The exit code of a program whose run ended so: the same command may go on.
inline constexpr int kRankLostExit = 4;

}  // namespace assay
