// A fast 64-bit hash for comparing states, not for security (SHA-256 is in data/sha256.h). FNV-1a
// over 64-bit words with a final avalanche (the finaliser of SplitMix64).
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace assay {

inline uint64_t hash_mix(uint64_t h) {
  h = (h ^ (h >> 30)) * 0xBF58476D1CE4E5B9u;
  h = (h ^ (h >> 27)) * 0x94D049BB133111EBu;
  return h ^ (h >> 31);
}

inline uint64_t hash_words(const uint64_t* words, size_t count) {
  uint64_t h = 0xCBF29CE484222325u;
  for (size_t i = 0; i < count; ++i) h = (h ^ words[i]) * 0x100000001B3u;
  return hash_mix(h);
}

// A hash of float bits: the sum of the words, weighted by position. It vectorises, changes with
// every bit and every swap, and the hashes of pieces can be added in any order. first_index is the
// position of data[0] in the whole.
inline uint64_t hash_floats(const float* data, int64_t count, int64_t first_index = 0) {
  uint64_t sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, data + i, sizeof bits);
    sum += (uint64_t{bits} + 1) * (2 * uint64_t(first_index + i) + 0x9E3779B97F4A7C15u);
  }
  return sum;
}

}  // namespace assay
