// Counter-based random numbers: Philox 4x32-10 (Salmon, Moraes, Dror, Shaw, SC 2011). A number is a
// pure function of (seed, stream, step, element), so that every backend, rank count and thread
// count draws the same. Checked against the paper's known-answer vectors in tests/base. The
// constexpr functions are called in kernels too.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace assay {

struct RandomKey {
  uint64_t seed = 0;
  uint64_t stream = 0;  // names what is drawn: stream_id("blocks.3.attn.qkv"), ...
  uint32_t step = 0;
};

constexpr std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> counter,
                                             std::array<uint32_t, 2> key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53u} * counter[0];
    const uint64_t b = uint64_t{0xCD9E8D57u} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key[0], static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key[1], static_cast<uint32_t>(a)};
    key[0] += 0x9E3779B9u;
    key[1] += 0xBB67AE85u;
  }
  return counter;
}

// FNV-1a of the name of a tensor or a purpose.
constexpr uint64_t stream_id(std::string_view name) {
  uint64_t h = 0xCBF29CE484222325u;
  for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001B3u;
  return h;
}

// Four words for block `block` of the key: counter = (block, stream), key = seed mixed with the
// step.
constexpr std::array<uint32_t, 4> random_block(const RandomKey& key, uint64_t block) {
  const uint64_t k = key.seed + uint64_t{key.step} * 0x9E3779B97F4A7C15u;
  return philox4x32({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                     static_cast<uint32_t>(key.stream), static_cast<uint32_t>(key.stream >> 32)},
                    {static_cast<uint32_t>(k), static_cast<uint32_t>(k >> 32)});
}

constexpr uint32_t random_word(const RandomKey& key, uint64_t element) {
  return random_block(key, element / 4)[element % 4];
}

// Uniform in (0, 1): never 0, never 1.
inline double uniform_open(uint32_t word) {
  return (word + 0.5) * 0x1p-32;
}

// Likewise with 53 bits, of which `fine` has the last 21. The largest would be 1 when rounded.
inline double uniform_open(uint32_t word, uint32_t fine) {
  const uint64_t bits = (uint64_t{word} << 21) | (fine >> 11);
  return std::min((double(bits) + 0.5) * 0x1p-53, 1 - 0x1p-53);
}

// Standard normal number i (`element`): Box-Muller on words (0, 1) or (2, 3) of block i / 2.
inline double random_normal(const RandomKey& key, uint64_t element) {
  const auto w = random_block(key, element / 2);
  const int pair = static_cast<int>(element % 2) * 2;
  const double radius = std::sqrt(-2.0 * std::log(uniform_open(w[pair])));
  return radius * std::cos(6.283185307179586477 * uniform_open(w[pair + 1]));
}

// A small sequential generator over the counter, for data synthesis and tests.
class RandomSequence {
 public:
  explicit RandomSequence(const RandomKey& key) : key_(key) {}
  uint32_t next() {
    if (element_ % 4 == 0) block_ = random_block(key_, element_ / 4);
    return block_[element_++ % 4];
  }
  double uniform() { return uniform_open(next()); }
  // Uniform in [0, n), n >= 1; bias below n / 2^32.
  uint32_t below(uint32_t n) { return static_cast<uint32_t>((uint64_t{next()} * n) >> 32); }

 private:
  RandomKey key_;
  uint64_t element_ = 0;                // the next word
  std::array<uint32_t, 4> block_ = {};  // the block that the last word came from
};

}  // namespace assay
