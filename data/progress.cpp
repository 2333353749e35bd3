#include "data/progress.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"
#include "base/seconds_since.h"
#include "base/standard_output.h"

namespace assay {

namespace {
constexpr int kBarWidth = 30;
constexpr std::chrono::milliseconds kRedraw(100);
constexpr std::chrono::milliseconds kNextLine(1000);
}  // namespace

Progress::Progress(std::string what, int64_t total, ProgressUnit unit,
                   std::chrono::milliseconds after)
    : what_(std::move(what)),
      total_(total),
      unit_(unit),
      after_(after),
      terminal_(can_move_cursor(STDERR_FILENO)) {}

Progress::~Progress() {
  if (terminal_ && shown_) std::fprintf(stderr, "\n");
}

double Progress::seconds() const {
  return seconds_since(start_);
}

std::string Progress::line(int64_t done) const {
  const double seconds = std::max(1e-3, this->seconds());
  const double units = static_cast<double>(done) / unit_.size;
  std::string text = strprintf("%s %.1f %s %.1f %s/s", what_.c_str(), units, unit_.name,
                               units / seconds, unit_.name);
  if (total_ <= 0 || done <= 0) return text;
  const double share = std::min(1.0, static_cast<double>(done) / static_cast<double>(total_));
  const double left = seconds * (1 - share) / share;
  return text + strprintf(" %.0f%% eta %.0f s", 100 * share, left);
}

void Progress::update(int64_t done) {
  const auto now = std::chrono::steady_clock::now();
  if (now - start_ < after_) return;
  if (!terminal_) {
    const int tenth = total_ > 0 ? static_cast<int>(std::min<int64_t>(10, 10 * done / total_)) : 0;
    if (tenth <= tenth_ || now - last_ < kNextLine) return;
    tenth_ = tenth;
    last_ = now;
    std::fprintf(stderr, "%s\n", line(done).c_str());
    return;
  }
  if (shown_ && now - last_ < kRedraw && done < total_) return;
  last_ = now;
  shown_ = true;
  const int filled =
      total_ > 0 ? static_cast<int>(std::min<int64_t>(kBarWidth, kBarWidth * done / total_)) : 0;
  const std::string bar(static_cast<size_t>(filled), '#');
  std::fprintf(stderr, "\r[%-*s] %s\033[K", kBarWidth, bar.c_str(), line(done).c_str());
  std::fflush(stderr);
}

}  // namespace assay
