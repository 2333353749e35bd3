// Which source each sequence of a step comes from, where sources are mixed by weights.
//
//   w(k)       weight of source k over the sum of weights
//   u(t)       u(0) + t (sqrt(5) - 1) / 2, modulo 1, u(0) uniform in [0, 1) by the seed: spread evenly over any steps, so that
//              what was drawn in all stays within a few sequences of the weights
//   points     (j + u(t)) / S for j = 0 .. S - 1, S sequences a step; a point belongs to the source in whose interval
//              of the cumulative weights it lies
//   order      the S sequences are shuffled, by (seed, step t)
//
// So every step takes S w(k) sequences of source k on average, rounded down or up, and which ones
// they are follows from seed and step alone: nothing has to be saved to go on. In integers, weights
// in units of 2^-32: every machine draws the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay {

class Mixture {
 public:
  // UserError for a source whose share is too small to be drawn ever.
  Mixture(const std::vector<double>& weights, int64_t sequences, uint64_t seed);

  int64_t sources() const { return static_cast<int64_t>(bounds_.size()) - 1; }
  int64_t sequences() const { return sequences_; }  // of a step
  double share(int64_t source) const;

  // counts (sources): sequences of each source in the step.
  void count(int64_t step, std::span<int64_t> counts) const;
  // source (sequences): of each sequence of the step.
  void draw(int64_t step, std::span<int32_t> source) const;

 private:
  // How many points of the step lie below bound k.
  int64_t points_below(size_t bound, uint32_t offset) const;
  uint32_t offset(int64_t step) const;

  std::vector<uint64_t> bounds_;  // (sources + 1) cumulative shares, from 0 to 2^32
  int64_t sequences_;
  uint64_t seed_;
};

// How many sequences of each source the steps before one take. Counted on from the step asked for
// last.
class DrawnBefore {
 public:
  explicit DrawnBefore(const Mixture& mixture);
  std::span<const int64_t> at(int64_t step);  // (sources), valid until the next call

 private:
  const Mixture& mixture_;
  int64_t step_ = 0;
  std::vector<int64_t> drawn_, counts_;
};

}  // namespace assay
