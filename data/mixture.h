// Chooses the source of each sequence of a step when sources are mixed by weights.
//
//   w(k)       weight of source k over the sum of weights
//   u(t)       u(0) + t (sqrt(5) - 1) / 2, modulo 1; u(0) uniform in [0, 1), from the seed. These
//              values are evenly spread over any steps, so that the totals drawn stay within a few
//              sequences of the weights
//   points     (j + u(t)) / S for j = 0 .. S - 1, with S sequences per step; a point belongs to the
//              source whose interval of the cumulative weights contains it
//   order      the S sequences are shuffled, by (seed, step t)
//
// So a step takes S w(k) sequences of source k on average, rounded down or up. The draws depend
// only on seed and step, so that no state is saved to resume. Computed in integers, with weights in
// units of 2^-32, so that every machine draws the same.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace assay {

class Mixture {
 public:
  // sequences: of a step. UserError when there are 2^31 or more, or when a weight is too small to
  // be ever drawn.
  Mixture(const std::vector<double>& weights, int64_t sequences, uint64_t seed);

  int64_t sources() const { return static_cast<int64_t>(bounds_.size()) - 1; }
  int64_t sequences() const { return sequences_; }  // per step
  double share(int64_t source) const;               // its weight over the sum of weights

  // Writes counts (sources), the number of sequences of each source in the step.
  void count(int64_t step, std::span<int64_t> counts) const;
  // Writes source (sequences), the source of each sequence of the step.
  void draw(int64_t step, std::span<int32_t> source) const;

 private:
  // Number of points of the step below bounds_[bound].
  int64_t points_below(size_t bound, uint32_t offset) const;
  uint32_t offset(int64_t step) const;

  std::vector<uint64_t> bounds_;  // (sources + 1) cumulative shares, from 0 to 2^32
  int64_t sequences_;
  uint64_t seed_;
};

// Counts the sequences drawn from each source before a step. Continues from the step of the last
// call, so calls with ascending steps are cheap.
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
