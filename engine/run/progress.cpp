#include "engine/run/progress.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace assay {
namespace {

double percent(int64_t done, int64_t total) {
  return total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 0.0;
}

}  // namespace

double unsigned_nan(double value) {
  return std::isnan(value) ? std::fabs(value) : value;
}

std::string duration_text(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0) return "?";
  const long s = std::lround(std::min(seconds, 1e12));
  if (s < 60) return strprintf("%lds", s);
  if (s < 3600) return strprintf("%ldm%02lds", s / 60, s % 60);
  if (s < 86400) return strprintf("%ldh%02ldm", s / 3600, s / 60 % 60);
  return strprintf("%ldd%02ldh", s / 86400, s / 3600 % 24);
}

std::string count_text(double count) {
  if (count < 999.5) return strprintf("%.0f", count);
  if (count < 9.95e3) return strprintf("%.1fk", count / 1e3);
  if (count < 999.5e3) return strprintf("%.0fk", count / 1e3);
  if (count < 9.95e6) return strprintf("%.1fM", count / 1e6);
  return strprintf("%.0fM", count / 1e6);
}

std::string step_line(const StepLine& l) {
  std::string text = strprintf(
      "step %ld/%ld %.1f%% loss %.3f lr %.1e norm %.2f %.0f ms %s tok/s", static_cast<long>(l.step),
      static_cast<long>(l.steps), percent(l.step, l.steps), unsigned_nan(l.loss), l.lr,
      unsigned_nan(l.grad_norm), l.step_ms, count_text(l.tokens_per_s).c_str());
  if (l.mfu_percent) text += strprintf(" mfu %.0f%%", *l.mfu_percent);
  if (l.load)
    text += strprintf(" load %.2fx (min-H %.2f/%.2f)", *l.load, l.min_entropy, l.entropy_ceiling);
  return text + strprintf(" eta %s #%08x", duration_text(l.seconds_left).c_str(), l.hash);
}

std::string short_step_line(const StepLine& l) {
  std::string text = strprintf("step %ld/%ld loss %.*f lr %.1e %s tok/s", long(l.step),
                               long(l.steps), l.loss < 10 ? 3 : 2, unsigned_nan(l.loss), l.lr,
                               count_text(l.tokens_per_s).c_str());
  if (l.load) text += strprintf(" load %.2fx", *l.load);
  return text + strprintf(" eta %s #%08x", duration_text(l.seconds_left).c_str(), l.hash);
}

std::string progress_bar(int64_t done, int64_t total, double seconds_left, int columns) {
  const std::string text =
      strprintf(" %.1f%% %ld/%ld eta %s", percent(done, total), static_cast<long>(done),
                static_cast<long>(total), duration_text(seconds_left).c_str());
  const int room = std::min(40, columns - 3 - static_cast<int>(text.size()));
  if (room < 5) return text.substr(1, static_cast<size_t>(std::max(0, columns - 1)));
  const double share = std::clamp(percent(done, total) / 100.0, 0.0, 1.0);
  const size_t filled = static_cast<size_t>(share * room);
  return "[" + std::string(filled, '#') + std::string(static_cast<size_t>(room) - filled, '.') +
         "]" + text;
}

double Eta::seconds_left(int64_t steps) const {
  return seen_ == 0 && steps > 0 ? std::nan("") : mean_ * static_cast<double>(steps);
}

void Eta::step_took(double seconds) {
  constexpr double kRecent = 0.05;
  ++seen_;
  const double weight = std::max(kRecent, 1.0 / static_cast<double>(seen_));
  mean_ += weight * (seconds - mean_);
}

}  // namespace assay
