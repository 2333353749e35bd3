#include "data/sequence_order.h"

#include "base/check.h"
#include "base/random.h"

namespace assay {

namespace {

constexpr int kRounds = 8;
constexpr uint64_t kStream = stream_id("data.shuffle");

}  // namespace

SequenceOrder::SequenceOrder(int64_t sequences, uint64_t seed, uint64_t stream)
    : sequences_(static_cast<uint64_t>(sequences)), seed_(seed), stream_(kStream + stream) {
  CHECK(sequences > 0 && sequences < int64_t{1} << 62, "%ld sequences",
        static_cast<long>(sequences));
  while (uint64_t{1} << (2 * half_bits_) < sequences_) ++half_bits_;
}

uint64_t SequenceOrder::permuted(uint64_t value, uint32_t epoch) const {
  const RandomKey key{.seed = seed_, .stream = stream_, .step = epoch};
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t left = value >> half_bits_, right = value & mask;
  for (uint64_t round = 0; round < kRounds; ++round) {
    const uint64_t mixed = left ^ (random_word(key, round << 32 | right) & mask);
    left = right;
    right = mixed;
  }
  return left << half_bits_ | right;
}

int64_t SequenceOrder::at(int64_t n) const {
  const uint64_t position = static_cast<uint64_t>(n);
  const auto epoch = static_cast<uint32_t>(position / sequences_);
  uint64_t value = position % sequences_;
  do value = permuted(value, epoch);
  while (value >= sequences_);
  return static_cast<int64_t>(value);
}

}  // namespace assay
