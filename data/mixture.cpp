#include "data/mixture.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "base/math.h"
#include "base/random.h"

namespace assay {

namespace {

constexpr uint64_t kOne = uint64_t{1} << 32;
constexpr uint64_t kOffsets = stream_id("data.mixture.offset");
constexpr uint64_t kOrder = stream_id("data.mixture.order");

RandomKey key_of(uint64_t seed, uint64_t stream, int64_t step) {
  return {.seed = seed, .stream = stream, .step = static_cast<uint32_t>(step)};
}

}  // namespace

Mixture::Mixture(const std::vector<double>& weights, int64_t sequences, uint64_t seed)
    : bounds_{0}, sequences_(sequences), seed_(seed) {
  if (sequences >= int64_t{1} << 31)
    throw UserError(
        strprintf("a step of %ld sequences cannot be mixed", static_cast<long>(sequences)),
        "lower run.batch_tokens, or remove data.mixture");
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double below = 0;
  for (size_t k = 0; k < weights.size(); ++k) {
    below += weights[k];
    const bool last = k + 1 == weights.size();
    bounds_.push_back(
        last ? kOne : std::min(kOne, static_cast<uint64_t>(std::llround(below / sum * 0x1p32))));
    if (bounds_[k + 1] > bounds_[k]) continue;
    throw UserError(
        strprintf("data.mixture: weight %g of %g in all is too small to be drawn", weights[k], sum),
        "remove the entry from data.train and data.mixture, or raise its weight");
  }
}

double Mixture::share(int64_t source) const {
  const size_t k = static_cast<size_t>(source);
  return static_cast<double>(bounds_[k + 1] - bounds_[k]) * 0x1p-32;
}

uint32_t Mixture::offset(int64_t step) const {
  constexpr uint32_t kGolden = 0x9E3779B9u;  // (sqrt(5) - 1) / 2 in units of 2^-32
  return random_word(key_of(seed_, kOffsets, 0), 0) + static_cast<uint32_t>(step) * kGolden;
}

// Number of j in 0 .. S - 1 with j 2^32 + offset < bounds_[bound] S: the points times S 2^32.
int64_t Mixture::points_below(size_t bound, uint32_t offset) const {
  const uint64_t reach = bounds_[bound] * static_cast<uint64_t>(sequences_);
  return reach <= offset ? 0 : static_cast<int64_t>(ceil_div(reach - offset, kOne));
}

void Mixture::count(int64_t step, std::span<int64_t> counts) const {
  const uint32_t u = offset(step);
  int64_t before = 0;
  for (size_t k = 0; k < counts.size(); ++k) {
    const int64_t upto = points_below(k + 1, u);
    counts[k] = upto - before;
    before = upto;
  }
}

void Mixture::draw(int64_t step, std::span<int32_t> source) const {
  const uint32_t u = offset(step);
  int64_t at = 0;
  for (size_t k = 0; k + 1 < bounds_.size(); ++k)
    for (const int64_t upto = points_below(k + 1, u); at < upto; ++at)
      source[static_cast<size_t>(at)] = static_cast<int32_t>(k);
  RandomSequence random(key_of(seed_, kOrder, step));
  for (size_t left = source.size(); left > 1; --left)
    std::swap(source[left - 1], source[random.below(static_cast<uint32_t>(left))]);
}

DrawnBefore::DrawnBefore(const Mixture& mixture)
    : mixture_(mixture),
      drawn_(static_cast<size_t>(mixture.sources())),
      counts_(static_cast<size_t>(mixture.sources())) {}

std::span<const int64_t> DrawnBefore::at(int64_t step) {
  if (step < step_) {
    step_ = 0;
    std::fill(drawn_.begin(), drawn_.end(), 0);
  }
  for (; step_ < step; ++step_) {
    mixture_.count(step_, counts_);
    for (size_t k = 0; k < drawn_.size(); ++k) drawn_[k] += counts_[k];
  }
  return drawn_;
}

}  // namespace assay
