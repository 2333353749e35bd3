// What a machine's limits are measured with.
#include <cmath>

#include "base/bf16.h"
#include "machine/gpu_timer.h"
#include "machine/limits.h"
#include "machine/normals.h"
#include "tests/catch.h"

namespace assay {

TEST_CASE("products are measured with normal numbers, like the cases that are compared with them") {
  std::vector<float> x(200000);
  std::vector<bf16> rounded(x.size());
  fill_normal(x.data(), int64_t(x.size()));
  fill_normal(rounded.data(), int64_t(rounded.size()));
  double sum = 0, squares = 0;
  size_t equal_neighbours = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    REQUIRE(rounded[i].bits == bf16(x[i]).bits);
    sum += double(x[i]);
    squares += double(x[i]) * double(x[i]);
    equal_neighbours += i >= 4096 && x[i] == x[i - 4096] ? 1 : 0;
  }
  const double n = double(x.size());
  REQUIRE(std::abs(sum / n) < 0.02);
  REQUIRE(std::abs(squares / n - 1) < 0.02);
  REQUIRE(equal_neighbours < 10);  // rows of 4096 are not one row again and again
}

TEST_CASE("a copy is measured") {
  const double rate = measured_copy_gb_per_s({.threads = 2});
  REQUIRE(rate > 0.1);
  REQUIRE(rate < 1e5);
}

TEST_CASE("what is read from a GPU's L2 fits into half of it, and is at most half of an H100's") {
  gpu::DeviceFacts facts;
  facts.l2_bytes = int64_t{50} << 20;
  REQUIRE(l2_read_bytes(facts) == size_t{24} << 20);
  facts.l2_bytes = int64_t{4} << 20;
  REQUIRE(l2_read_bytes(facts) == size_t{2} << 20);
  facts.l2_bytes = 4722688 + 8;
  REQUIRE(l2_read_bytes(facts) % 16 == 0);
}

}  // namespace assay
