// How far a rank has come, as one number that can be compared with that of any other rank. Groups
// may be parts of others, and two parts may make different numbers of calls until their ranks meet
// in a wider one. So a call of a wider group counts before all calls of narrower ones:
//
//   calls of all ranks << 34 | of replicas since then << 18 | of expert groups since then
//
// A number that is full stays as it is: ranks that have more than 2^18 - 1 calls of their expert
// group between two wider ones, 2^16 - 1 of replicas between two of all, or 2^30 - 1 of all, count
// as equally far in it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace assay {

class CallOrder {
 public:
  enum class Of { kAll, kReplicas, kExperts };  // the widest first

  // A call of such a group begins.
  void begin(Of group) noexcept {
    const auto at = size_t(group);
    if (calls_[at] == kMost[at]) return;
    calls_[at] += 1;
    for (size_t narrower = at + 1; narrower < calls_.size(); ++narrower) calls_[narrower] = 0;
  }

  uint64_t value() const noexcept { return calls_[0] << 34 | calls_[1] << 18 | calls_[2]; }

 private:
  static constexpr std::array<uint64_t, 3> kMost = {(1 << 30) - 1, (1 << 16) - 1, (1 << 18) - 1};
  std::array<uint64_t, 3> calls_{};
};

}  // namespace assay
