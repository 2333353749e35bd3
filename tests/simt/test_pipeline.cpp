// The example kernel under several schedules: always the same bits, equal to the rounded exact
// product. (The numbers are small multiples of 1/4, so sums are exact in float and only the last
// rounding remains.)
#include <vector>

#include "tests/catch.h"
#include "tests/simt/pipeline.h"
#include "tests/simt/run.h"

namespace assay::pipeline {
namespace {

std::vector<bf16> numbers(int count, uint32_t seed) {
  std::vector<bf16> x(static_cast<size_t>(count));
  for (bf16& v : x) {
    seed = seed * 1664525u + 1013904223u;
    v = bf16(float(int(seed >> 24) % 17 - 8) / 4.0f);
  }
  return x;
}

void check(Order order, int m, int n, int k) {
  INFO("order " << int(order) << ", " << m << " x " << n << " x " << k);
  const std::vector<bf16> a = numbers(m * k, 1), b = numbers(n * k, 2);
  const int a_row = order == Order::kTn ? 1 : k, a_depth = order == Order::kTn ? m : 1;
  const int b_row = order == Order::kNt ? k : 1, b_depth = order == Order::kNt ? 1 : n;
  std::vector<uint16_t> want(size_t(m * n));
  for (int row = 0; row < m; ++row) {
    for (int column = 0; column < n; ++column) {
      float sum = 0;
      for (int i = 0; i < k; ++i)
        sum += float(a[size_t(row * a_row + i * a_depth)]) *
               float(b[size_t(column * b_row + i * b_depth)]);
      want[size_t(row * n + column)] = bf16(sum).bits;
    }
  }
  const test::DeviceArray<bf16> left(a), right(b);
  for (const simt::Schedule schedule : test::some_schedules()) {
    INFO("schedule " << simt::to_string(schedule));
    simt::set_schedule(schedule);
    test::DeviceArray<bf16> d(size_t(m * n));
    multiply({}, order,
             {.d = d.data(), .a = left.data(), .b = right.data(), .m = m, .n = n, .k = k});
    const std::vector<bf16> got = d.host();
    size_t wrong = 0;
    for (size_t i = 0; i < got.size(); ++i) wrong += got[i].bits != want[i];
    REQUIRE(wrong == 0);
  }
  simt::set_schedule({});
}

TEST_CASE("a pipeline of TMA and wgmma, three orders of its operands, ragged edges") {
  for (const Order order : {Order::kNt, Order::kNn, Order::kTn}) {
    check(order, 256, 256, 256);
    check(order, 200, 136, 328);  // more tiles along k than stages, ragged in every dimension
    check(order, 8, 8, 8);
  }
}

}  // namespace
}  // namespace assay::pipeline
