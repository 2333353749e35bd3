// Products whose rows lie farther apart than they are long (ops/cpu_gemm/ragged.h): the bits are
// those of adjacent rows, and the gaps are neither read nor written.
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

#include "base/bf16.h"
#include "ops/cpu_gemm/ragged.h"
#include "ops/weight_matrix.h"
#include "tests/catch.h"

namespace assay::test_row_strides {

namespace {

// Memory of whole 64-byte lines.
template <typename T>
class Lines {
 public:
  explicit Lines(int64_t bytes) : memory_(size_t(bytes) + 64) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data());
    begin_ = memory_.data() + (64 - address % 64) % 64;
  }
  T* data() { return reinterpret_cast<T*>(begin_); }

 private:
  std::vector<std::byte> memory_;
  std::byte* begin_;
};

// A matrix whose rows are `stride` apart; `gap` is between them.
template <typename T>
std::vector<T> matrix(int64_t rows, int64_t cols, int64_t stride, float gap, uint32_t seed) {
  std::vector<T> m(size_t(rows * stride), T(gap));
  uint32_t state = seed;
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t j = 0; j < cols; ++j) {
      state = state * 1664525u + 1013904223u;
      m[size_t(i * stride + j)] = T(float(int32_t(state >> 8) % 1000) / 500.0f - 1.0f);
    }
  }
  return m;
}

template <typename T>
bool same_bits(const T* a, const T* b, int64_t n) {
  return std::memcmp(a, b, size_t(n) * sizeof(T)) == 0;
}

// Row by row; the gaps of `apart` still hold `gap`.
template <typename T>
bool same_rows(const std::vector<T>& apart, const std::vector<T>& adjacent, int64_t cols,
               int64_t stride, float gap) {
  const std::vector<T> gaps(size_t(stride - cols), T(gap));
  for (int64_t i = 0; i < int64_t(adjacent.size()) / cols; ++i) {
    const T* row = apart.data() + i * stride;
    if (!same_bits(row, adjacent.data() + i * cols, cols)) return false;
    if (!same_bits(row + cols, gaps.data(), stride - cols)) return false;
  }
  return true;
}

struct Shape {
  int64_t cols, k;
  std::vector<int32_t> offsets;
};
const Shape kShapes[] = {
    {96, 64, {0, 96}},         // whole tiles
    {320, 704, {0, 40, 200}},  // several passes over k
    {50, 33, {0, 7, 7, 70}},   // an odd k; a segment without rows
    {16, 2050, {0, 32, 33}},
};
constexpr int64_t kGapOfA = 24, kGapOfC = 40;

std::vector<int32_t> reversed_rows(int64_t rows) {
  std::vector<int32_t> row(static_cast<size_t>(rows));
  std::iota(row.rbegin(), row.rend(), 0);
  return row;
}

template <typename T, typename Y>
void check_products(const Shape& s, bool gathers, bool adds, int threads) {
  CAPTURE(s.cols, s.k, s.offsets, gathers, adds, threads);
  const int64_t rows = s.offsets.back(), segments = int64_t(s.offsets.size()) - 1;
  const int64_t bytes = weight_stack_pack_bytes<T>(segments, s.cols, s.k);
  const std::vector<T> weight = matrix<T>(segments * s.cols, s.k, s.k, 0, 1);
  Lines<std::byte> packed(bytes);
  const Exec on{.threads = threads};
  weight_stack_pack<T>(
      on, {.packed = {packed.data(), {bytes}}, .plain = {weight.data(), {segments, s.cols, s.k}}});
  const std::vector<int32_t> row = reversed_rows(rows);
  const auto product = [&](int64_t gap_of_a, int64_t gap_of_c) {
    const std::vector<T> a = matrix<T>(rows, s.k, s.k + gap_of_a, NAN, 2);
    const std::vector<Y> start = matrix<Y>(rows, s.cols, s.cols + gap_of_c, NAN, 3);
    std::vector<Y> c(start.size(), Y(7.0f));
    multiply_segments<T, Y>(on, {.c = c.data(),
                                 .start = adds ? start.data() : nullptr,
                                 .c_stride = s.cols + gap_of_c,
                                 .a = a.data(),
                                 .a_stride = s.k + gap_of_a,
                                 .row = gathers ? row.data() : nullptr,
                                 .b = packed.data(),
                                 .b_bytes = bytes / segments,
                                 .cols = s.cols,
                                 .k = s.k,
                                 .segments = {s.offsets.data(), segments},
                                 .scale = {}});
    return c;
  };
  const std::vector<Y> adjacent = product(0, 0);
  REQUIRE(same_rows(product(kGapOfA, 0), adjacent, s.cols, s.cols, 7.0f));
  REQUIRE(same_rows(product(0, kGapOfC), adjacent, s.cols, s.cols + kGapOfC, 7.0f));
  REQUIRE(same_rows(product(kGapOfA, kGapOfC), adjacent, s.cols, s.cols + kGapOfC, 7.0f));
}

template <typename T, typename Y>
void check_products() {
  for (const Shape& s : kShapes) {
    for (const bool gathers : {false, true}) {
      for (const bool adds : {false, true}) {
        for (const int threads : {1, 2}) check_products<T, Y>(s, gathers, adds, threads);
      }
    }
  }
}

template <typename T>
void check_gradients() {
  for (const Shape& s : kShapes) {
    const int64_t all = s.offsets.back(), segments = int64_t(s.offsets.size()) - 1;
    const int64_t bytes = accumulate_workspace_bytes<T>(all, segments, s.cols);
    Lines<std::byte> workspace(bytes);
    const Exec on{.threads = 1, .workspace = {workspace.data(), {bytes}}};
    const std::vector<T> b = matrix<T>(all, s.cols, s.cols, 0, 4);
    const auto gradient = [&](int64_t gap) {
      const std::vector<T> a = matrix<T>(all, s.k, s.k + gap, NAN, 5);
      std::vector<float> c = matrix<float>(segments * s.k, s.cols, s.cols, 0, 6);
      accumulate_segments<T>(on, {.c = c.data(),
                                  .sum = GradientSum::kAdd,
                                  .a = a.data(),
                                  .a_stride = s.k + gap,
                                  .b = b.data(),
                                  .row = nullptr,
                                  .rows = s.k,
                                  .cols = s.cols,
                                  .segments = {s.offsets.data(), segments},
                                  .scale = {}});
      return c;
    };
    CAPTURE(s.cols, s.k, s.offsets);
    const std::vector<float> adjacent = gradient(0), apart = gradient(kGapOfA);
    REQUIRE(same_bits(apart.data(), adjacent.data(), int64_t(adjacent.size())));
  }
}

TEST_CASE("products of rows with gaps have the bits of adjacent rows, float") {
  check_products<float, float>();
  check_gradients<float>();
}
TEST_CASE("products of rows with gaps have the bits of adjacent rows, bf16") {
  check_products<bf16, bf16>();
  check_products<bf16, float>();
  check_gradients<bf16>();
}

}  // namespace

}  // namespace assay::test_row_strides
