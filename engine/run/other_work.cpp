#include "engine/run/other_work.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace assay {
namespace {

// Checkpoints by time take at most this share of the run's time.
constexpr double kSavingShare = 0.05;

// Of `every` in [from, to); from is at least 1.
int64_t multiples(int64_t every, int64_t from, int64_t to) {
  return every > 0 && to > from ? (to - 1) / every - (from - 1) / every : 0;
}

bool is_multiple(int64_t step, int64_t every) {
  return every > 0 && step % every == 0;
}

// Of both.
int64_t common_multiples(int64_t a, int64_t b, int64_t from, int64_t to) {
  if (a <= 0 || b <= 0) return 0;
  const int64_t times = a / std::gcd(a, b);
  return times > to / b ? 0 : multiples(times * b, from, to);
}

}  // namespace

void OtherWork::Mean::add(double seconds) {
  sum += seconds;
  ++n;
}

OtherWork::OtherWork(const RunConfig& run, std::span<Evaluator* const> evaluators,
                     std::span<const Landing> landings)
    : run_(run), evaluators_(evaluators), landings_(landings), evaluation_s_(evaluators.size()) {}

void OtherWork::evaluated(const Evaluator& evaluator, double seconds) {
  const auto found = std::find(evaluators_.begin(), evaluators_.end(), &evaluator);
  evaluation_s_[size_t(found - evaluators_.begin())].add(seconds);
}

void OtherWork::saved(double seconds) {
  save_s_.add(seconds);
}

int64_t OtherWork::evaluations_left(const Evaluator& evaluator, int64_t done) const {
  int64_t left = multiples(evaluator.every(), done, run_.steps);
  for (const Landing& l : landings_) {
    if (l.step < done || l.step >= run_.steps || is_multiple(l.step, evaluator.every())) continue;
    left += evaluator.due({.steps_done = l.step, .landing = true}) ? 1 : 0;
  }
  return left + (evaluator.due({.steps_done = run_.steps, .last = true}) ? 1 : 0);
}

int64_t OtherWork::saves_left(int64_t done, double steps_s) const {
  const int64_t rolling = run_.checkpoint_every, milestone = run_.milestone_every;
  int64_t by_step = multiples(rolling, done, run_.steps) + multiples(milestone, done, run_.steps) -
                    common_multiples(rolling, milestone, done, run_.steps);
  for (const Landing& l : landings_) {
    const bool other = l.step >= done && l.step < run_.steps && !is_multiple(l.step, rolling) &&
                       !is_multiple(l.step, milestone);
    by_step += other ? 1 : 0;
  }
  int64_t by_time = 0;
  if (run_.checkpoint_minutes > 0 && std::isfinite(steps_s)) {
    by_time = int64_t(std::min(double(run_.steps - done),
                               steps_s / seconds_between_saves(run_, save_s_.value())));
  }
  return std::max(by_step, by_time) + 1;  // and that of the end
}

double OtherWork::seconds_left(int64_t done, double steps_s) const {
  double left = save_s_.n > 0 ? save_s_.value() * double(saves_left(done, steps_s)) : 0;
  for (size_t i = 0; i < evaluators_.size(); ++i) {
    if (evaluation_s_[i].n == 0) continue;
    left += evaluation_s_[i].value() * double(evaluations_left(*evaluators_[i], done));
  }
  return left;
}

double seconds_between_saves(const RunConfig& run, double save_s) {
  return std::max(60 * run.checkpoint_minutes, save_s / kSavingShare);
}

}  // namespace assay
