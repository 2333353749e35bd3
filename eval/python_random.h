// The draws of Python's `random.Random(seed)`, for benchmarks that define their order and few-shot
// examples by them. MT19937 (Matsumoto and Nishimura, ACM TOMACS 8, 1998), seeded by its
// init_by_array with the seed as one word.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace assay {

class PythonRandom {
 public:
  explicit PythonRandom(uint32_t seed);

  uint32_t word();
  // Uniform in [0, bound), bound >= 1: the top bits of a word, drawn again until they are below.
  uint32_t below(uint32_t bound);
  // random.shuffle of 0 .. n - 1.
  std::vector<int64_t> shuffled(int64_t n);
  // random.sample(range(n), k), k <= n: k different numbers in the order they were drawn.
  std::vector<int64_t> sample(int64_t n, int64_t k);

 private:
  static constexpr int kWords = 624;
  std::array<uint32_t, kWords> state_;
  int next_ = kWords;  // index of the next word; kWords = a new block must be generated
};

}  // namespace assay
