// Shared by the case lists of the matrix products: packed weights, scales, and the rows that a
// large case checks.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/product_scale.h"
#include "ops/weight_matrix.h"
#include "tests/ops/op_case.h"

namespace assay {

template <typename T>
WeightMatrix<T> packed_weight(Workbench& bench, int64_t out, int64_t in, Fill fill = normal()) {
  const auto plain = bench.in<T, 2>("weight", {out, in}, fill);
  const auto packed =
      bench.in<std::byte, 1>("packed", {weight_pack_bytes<T>(out, in)}, {Fill::kZero});
  weight_pack<T>({.threads = 2}, {.packed = packed, .plain = plain});
  bench.commit();
  bench.must_move(packed, 0);  // a backend reads one of the two
  return {plain, packed};
}

template <typename T>
WeightStack<T> packed_stack(Workbench& bench, int64_t experts, int64_t out, int64_t in) {
  const auto plain = bench.in<T, 3>("weight", {experts, out, in});
  const auto packed = bench.in<std::byte, 1>(
      "packed", {weight_stack_pack_bytes<T>(experts, out, in)}, {Fill::kZero});
  weight_stack_pack<T>({.threads = 2}, {.packed = packed, .plain = plain});
  bench.commit();
  bench.must_move(packed, 0);
  return {plain, packed};
}

enum class Scaled { kNo, kLeft, kRight, kBoth, kGain, kAll };
inline const char* scaled_name(Scaled s) {
  const char* names[] = {"", " scale left", " scale right", " scale", " gain", " scale and gain"};
  return names[int(s)];
}
inline ProductScale product_scale(Workbench& bench, Scaled s) {
  ProductScale scale;
  const bool both = s == Scaled::kBoth || s == Scaled::kAll;
  if (s == Scaled::kLeft || both) {
    scale.left = bench.in<float, 1>("left", {2}, normal(0.4, 1.5));
  }
  if (s == Scaled::kRight || both) {
    scale.right = bench.in<float, 1>("right", {2}, normal(0.1, 0.3));
  }
  if (s == Scaled::kGain || s == Scaled::kAll) scale.gain = 0.204f;
  return scale;
}
inline double reference_scale(const ProductScale& s) {
  return (s.left.empty() ? 1.0 : double(s.left[0])) * (s.right.empty() ? 1.0 : double(s.right[0])) *
         double(s.gain);
}

// Indices in [0, n), where checking one costs `cost` operations: all while n * cost is small, else
// 24, or fewer (at least 3) if 24 take more than about a second. Includes the first and the last.
inline std::vector<int64_t> sample(int64_t n, double cost) {
  const int64_t affordable =
      std::clamp(int64_t(6e8 / std::max(cost, 1.0)), int64_t{3}, int64_t{24});
  const int64_t count = double(n) * cost < 2e7 ? n : std::min(n, affordable);
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? 0 : i * (n - 1) / (count - 1));
  return chosen;
}

// The same for cheap checks: as many as keep count * cost small, at least 24.
inline std::vector<int64_t> wide_sample(int64_t n, double cost) {
  const int64_t count = std::min(n, std::max(int64_t(2e7 / cost), int64_t{24}));
  std::vector<int64_t> chosen;
  for (int64_t i = 0; i < count; ++i) chosen.push_back(count == 1 ? 0 : i * (n - 1) / (count - 1));
  return chosen;
}

// The values of some rows or columns.
template <typename T>
std::vector<double> chosen_doubles(const View<T, 2>& v, const std::vector<int64_t>& rows) {
  std::vector<double> numbers;
  for (const int64_t r : rows) {
    for (int64_t c = 0; c < v.dim[1]; ++c) numbers.push_back(double(float(v.at(r, c))));
  }
  return numbers;
}
template <typename T>
std::vector<double> chosen_columns(const View<T, 2>& v, const std::vector<int64_t>& columns) {
  std::vector<double> numbers;
  for (int64_t r = 0; r < v.dim[0]; ++r) {
    for (const int64_t c : columns) numbers.push_back(double(float(v.at(r, c))));
  }
  return numbers;
}

inline std::vector<double> select_columns(const std::vector<double>& m, int64_t width,
                                          const std::vector<int64_t>& columns) {
  std::vector<double> out;
  for (size_t begin = 0; begin < m.size(); begin += size_t(width)) {
    for (const int64_t c : columns) out.push_back(m[begin + size_t(c)]);
  }
  return out;
}

inline std::vector<double> absolute(std::vector<double> v) {
  for (double& x : v) x = std::abs(x);
  return v;
}
inline std::vector<double> added(std::vector<double> v, const std::vector<double>& w) {
  for (size_t i = 0; i < v.size(); ++i) v[i] += w[i];
  return v;
}

// A copy of the chosen rows of `width` elements, with a view of them.
template <typename T>
struct Chosen {
  std::vector<T> values;
  View<T, 1> view() { return {values.data(), {int64_t(values.size())}}; }
};
template <typename T>
Chosen<T> chosen_rows(const T* data, int64_t width, const std::vector<int64_t>& rows) {
  Chosen<T> c;
  for (const int64_t r : rows) {
    c.values.insert(c.values.end(), data + r * width, data + (r + 1) * width);
  }
  return c;
}

}  // namespace assay
