#include "eval/python_random.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/check.h"

namespace assay {

namespace {

constexpr int kShift = 397;
constexpr uint32_t kTwist = 0x9908B0DFu;

// The largest n for which sample() draws from a list; above it, it draws numbers and rejects
// repeated ones. Python compares the size of the list with that of a set of k: 4^ceil(log4(3k)).
int64_t list_limit(int64_t k) {
  int64_t limit = 21;
  if (k <= 5) return limit;
  int64_t set_size = 1;
  while (set_size < 3 * k) set_size *= 4;
  return limit + set_size;
}

}  // namespace

PythonRandom::PythonRandom(uint32_t seed) {
  const auto fill = [](uint32_t before, uint32_t factor) {
    return (before ^ (before >> 30)) * factor;
  };
  state_[0] = 19650218u;
  for (uint32_t i = 1; i < kWords; ++i) state_[i] = fill(state_[i - 1], 1812433253u) + i;
  // The key is one word, so its index is 0 throughout.
  uint32_t i = 1;
  const auto step = [&] {
    if (++i < kWords) return;
    state_[0] = state_[kWords - 1];
    i = 1;
  };
  for (int round = 0; round < kWords; ++round, step()) {
    state_[i] = (state_[i] ^ fill(state_[i - 1], 1664525u)) + seed;
  }
  for (int round = 1; round < kWords; ++round, step()) {
    state_[i] = (state_[i] ^ fill(state_[i - 1], 1566083941u)) - i;
  }
  state_[0] = 0x80000000u;
}

uint32_t PythonRandom::word() {
  if (next_ == kWords) {
    for (int i = 0; i < kWords; ++i) {
      const uint32_t y = (state_[i] & 0x80000000u) | (state_[(i + 1) % kWords] & 0x7FFFFFFFu);
      state_[i] = state_[(i + kShift) % kWords] ^ (y >> 1) ^ ((y & 1u) != 0 ? kTwist : 0u);
    }
    next_ = 0;
  }
  uint32_t y = state_[next_++];
  y ^= y >> 11;
  y ^= (y << 7) & 0x9D2C5680u;
  y ^= (y << 15) & 0xEFC60000u;
  return y ^ (y >> 18);
}

uint32_t PythonRandom::below(uint32_t bound) {
  CHECK(bound >= 1, "a draw below %u", bound);
  const int bits = std::bit_width(bound);
  uint32_t drawn = bound;
  while (drawn >= bound) drawn = word() >> (32 - bits);
  return drawn;
}

std::vector<int64_t> PythonRandom::shuffled(int64_t n) {
  std::vector<int64_t> at(static_cast<size_t>(n));
  std::iota(at.begin(), at.end(), int64_t{0});
  for (int64_t i = n - 1; i >= 1; --i) {
    std::swap(at[size_t(i)], at[below(static_cast<uint32_t>(i + 1))]);
  }
  return at;
}

std::vector<int64_t> PythonRandom::sample(int64_t n, int64_t k) {
  CHECK(k >= 0 && k <= n, "%ld of %ld cannot be drawn", long(k), long(n));
  std::vector<int64_t> drawn;
  if (n > list_limit(k)) {
    while (int64_t(drawn.size()) < k) {
      const int64_t candidate = below(static_cast<uint32_t>(n));
      if (std::find(drawn.begin(), drawn.end(), candidate) == drawn.end()) {
        drawn.push_back(candidate);
      }
    }
    return drawn;
  }
  std::vector<int64_t> left(static_cast<size_t>(n));
  std::iota(left.begin(), left.end(), int64_t{0});
  for (int64_t i = 0; i < k; ++i) {
    const size_t at = below(static_cast<uint32_t>(n - i));
    drawn.push_back(left[at]);
    left[at] = left[size_t(n - i - 1)];
  }
  return drawn;
}

}  // namespace assay
