// The order in which the sequences of a source are visited when data.shuffle is on: in every epoch
// each of them once, in an order drawn from the run's seed and the epoch.
//
// A permutation of 0 .. N - 1 that needs no table: a Feistel network over the smallest even number
// of bits, at least 8, that can hold N values, with Philox (base/random.h) as its round function.
// It permutes 0 .. 2^bits - 1; a value of N or above is put through it again, which ends below N
// and leaves a permutation of what is below N (cycle walking). It is a function of seed, stream,
// epoch and position alone, so a run can resume anywhere, and threads and ranks change nothing.
#pragma once

#include <cstdint>

namespace assay {

class SequenceOrder {
 public:
  // stream: tells sources apart.
  SequenceOrder(int64_t sequences, uint64_t seed, uint64_t stream = 0);
  // The sequence (0 .. sequences - 1) that is visited n-th, n counted from 0 over all epochs.
  int64_t at(int64_t n) const;
  int64_t sequences() const { return static_cast<int64_t>(sequences_); }

 private:
  uint64_t permuted(uint64_t value, uint32_t epoch) const;

  uint64_t sequences_;
  uint64_t seed_;
  uint64_t stream_;
  int half_bits_ = 4;
};

}  // namespace assay
