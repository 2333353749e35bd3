// The gradient of a gate (ops/combine.h) has the same bits in any slot, at any place in a piece of
// tokens and on any thread.
#include <vector>

#include "base/bf16.h"
#include "ops/combine.h"
#include "tests/catch.h"

namespace assay::test_combine_bits {

namespace {

// All tokens have the same dy, all slots the same row: all gradients of gates are the same number.
template <typename T>
void check(int64_t tokens, int64_t k, int64_t width, int threads) {
  const int64_t slots = tokens * k;
  std::vector<T> row, out, dy, dout(size_t(slots * width));
  for (int64_t c = 0; c < width; ++c) row.push_back(T(float(c * 7919 % 1009 - 504) / 337.0f));
  for (int64_t i = 0; i < slots; ++i) out.insert(out.end(), row.begin(), row.end());
  for (int64_t i = 0; i < tokens; ++i) dy.insert(dy.end(), row.rbegin(), row.rend());
  std::vector<int32_t> slot;
  for (int64_t i = slots; i > 0; --i) slot.push_back(int32_t(i - 1));
  const std::vector<float> gate(size_t(slots), 0.5f);
  std::vector<float> dgate(size_t(slots), 7.0f);
  combine_backward<T>({.threads = threads}, {.dexpert_out = {dout.data(), {slots, width}},
                                             .dgate = {dgate.data(), {tokens, k}},
                                             .dy = {dy.data(), {tokens, width}},
                                             .expert_out = {out.data(), {slots, width}},
                                             .slot = {slot.data(), {tokens, k}},
                                             .gate = {gate.data(), {tokens, k}}});
  CAPTURE(tokens, k, width, threads);
  REQUIRE(dgate == std::vector<float>(size_t(slots), dgate[0]));
}

template <typename T>
void check_all() {
  for (const int64_t width : {1, 15, 16, 31, 32, 65, 256, 300}) {
    for (const int64_t k : {1, 2, 5}) {
      for (const int64_t tokens : {1, 31, 70}) {
        for (const int threads : {1, 2}) check<T>(tokens, k, width, threads);
      }
    }
  }
}

TEST_CASE("gradients of gates have the same bits in any slot") {
  check_all<float>();
  check_all<bf16>();
}

}  // namespace

}  // namespace assay::test_combine_bits
