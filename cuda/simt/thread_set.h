// A set of the threads of a block or a cluster, by slot.
#pragma once

#include <bit>
#include <cstdint>

namespace assay::simt {

class ThreadSet {
 public:
  static constexpr int kWords = 32;

  bool empty() const { return used_ == 0; }
  void clear() { *this = {}; }
  void insert(int i) {
    word_[i / 64] |= uint64_t{1} << (i % 64);
    used_ |= 1u << (i / 64);
  }
  void remove(int i) {
    word_[i / 64] &= ~(uint64_t{1} << (i % 64));
    if (word_[i / 64] == 0) used_ &= ~(1u << (i / 64));
  }
  // The lanes of `mask` in this warp.
  void insert_warp(int warp, uint32_t mask) {
    if (mask == 0) return;
    word_[warp / 2] |= uint64_t{mask} << (warp % 2 * 32);
    used_ |= 1u << (warp / 2);
  }
  void insert(const ThreadSet& other) {
    for (uint32_t words = other.used_; words != 0; words &= words - 1) {
      const int w = std::countr_zero(words);
      word_[w] |= other.word_[w];
    }
    used_ |= other.used_;
  }
  // lowest(), highest() and next() require a set that is not empty.
  int lowest() const {
    const int w = std::countr_zero(used_);
    return w * 64 + std::countr_zero(word_[w]);
  }
  int highest() const {
    const int w = 31 - std::countl_zero(used_);
    return w * 64 + 63 - std::countl_zero(word_[w]);
  }
  // The first thread >= i, or the lowest if there is none.
  int next(int i) const {
    const int w = i / 64;
    const uint64_t here = word_[w] & ~uint64_t{0} << (i % 64);
    if (here != 0) return w * 64 + std::countr_zero(here);
    const uint32_t above = used_ & ~uint32_t{1} << w;
    if (above == 0) return lowest();
    const int found = std::countr_zero(above);
    return found * 64 + std::countr_zero(word_[found]);
  }

 private:
  uint64_t word_[kWords] = {};
  uint32_t used_ = 0;  // bit w: word_[w] is not zero
};

}  // namespace assay::simt
