// The shares of threads in the products of weight gradients (ops/cpu_gemm/ragged.h): any number of
// threads gives the bits of one.
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include "base/bf16.h"
#include "ops/cpu_gemm/ragged.h"
#include "tests/catch.h"

namespace assay::test_weight_gradients {

namespace {

struct Shape {
  int64_t rows, cols;
  std::vector<int32_t> offsets;
};

template <typename T>
std::vector<T> values(int64_t n, uint32_t seed) {
  std::vector<T> v(static_cast<size_t>(n));
  uint32_t state = seed;
  for (T& x : v) {
    state = state * 1664525u + 1013904223u;
    x = T(float(int32_t(state >> 8) % 1000) / 500.0f - 1.0f);
  }
  return v;
}

template <typename T>
std::vector<float> gradient(const Shape& s, GradientSum sum, bool gathers, int threads) {
  const int64_t all = s.offsets.back(), segments = int64_t(s.offsets.size()) - 1;
  const std::vector<T> a = values<T>(all * s.rows, 1), b = values<T>(all * s.cols, 2);
  std::vector<float> c = values<float>(segments * s.rows * s.cols, 3);
  std::vector<int32_t> row(static_cast<size_t>(all));
  std::iota(row.rbegin(), row.rend(), 0);
  const int64_t bytes = accumulate_workspace_bytes<T>(all, segments, s.cols);
  std::vector<std::byte> memory(static_cast<size_t>(bytes) + 64);
  void* start = memory.data();
  size_t space = memory.size();
  std::align(64, size_t(bytes), start, space);
  const Exec on{.threads = threads, .workspace = {static_cast<std::byte*>(start), {bytes}}};
  accumulate_segments<T>(on, {.c = c.data(),
                              .sum = sum,
                              .a = a.data(),
                              .a_stride = s.rows,
                              .b = b.data(),
                              .row = gathers ? row.data() : nullptr,
                              .rows = s.rows,
                              .cols = s.cols,
                              .segments = {s.offsets.data(), segments},
                              .scale = {}});
  return c;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

template <typename T>
void check_threads() {
  const Shape shapes[] = {
      {96, 96, {0, 700}},                      // whole blocks, more than a slab of steps
      {32, 320, {0, 640}},                     // more columns than rows
      {70, 33, {0, 0, 37, 37, 530}},           // ragged; segments without rows
      {96, 64, {0, 0, 1, 32, 65, 576, 1089}},  // segments beside whole tiles and slabs
      {1, 200, {0, 65}},
      {1200, 300, {0, 40, 1100}},  // c is too large for slabs
  };
  for (const Shape& s : shapes) {
    for (const GradientSum sum : {GradientSum::kStore, GradientSum::kAdd}) {
      for (const bool gathers : {false, true}) {
        const std::vector<float> one = gradient<T>(s, sum, gathers, 1);
        for (const int threads : {2, 3, 4, 5, 7, 8, 16, 61}) {
          CAPTURE(s.rows, s.cols, s.offsets, gathers, threads);
          REQUIRE(same_bits(gradient<T>(s, sum, gathers, threads), one));
        }
      }
    }
  }
}

TEST_CASE("weight gradients have the bits of one thread, float") {
  check_threads<float>();
}
TEST_CASE("weight gradients have the bits of one thread, bf16") {
  check_threads<bf16>();
}

}  // namespace

}  // namespace assay::test_weight_gradients
