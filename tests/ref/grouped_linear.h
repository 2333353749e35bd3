// Scalar reference of ops/grouped_linear.h: loops, templated on the number type. Its gradient is
// proved by complex step in tests/ops/grouped_linear_cases.cpp.
#pragma once

#include <cstdint>
#include <vector>

namespace assay::ref {

template <typename S>
struct GroupedLinear {
  int64_t experts, out, in;
  std::vector<int32_t> offsets;  // (E+1)
  std::vector<int32_t> row;      // (A)
  S scale = 1;                   // left[1] right[1]

  // Calls f(a, r, w) with the assignment, its row of x, and the offset of its expert's weight.
  template <typename F>
  void for_assignments(F&& f) const {
    for (int64_t e = 0; e < experts; ++e) {
      for (int64_t a = offsets[size_t(e)]; a < offsets[size_t(e + 1)]; ++a) {
        f(a, int64_t{row[size_t(a)]}, e * out * in);
      }
    }
  }

  std::vector<S> forward(const std::vector<S>& x, const std::vector<S>& weight) const {
    std::vector<S> y(row.size() * size_t(out), S(0));
    for_assignments([&](int64_t a, int64_t r, int64_t w) {
      for (int64_t o = 0; o < out; ++o) {
        S sum = 0;
        for (int64_t i = 0; i < in; ++i) {
          sum += x[size_t(r * in + i)] * weight[size_t(w + o * in + i)];
        }
        y[size_t(a * out + o)] = scale * sum;
      }
    });
    return y;
  }

  // dx (A, in) of the gathered rows: one row per assignment.
  std::vector<S> dgrad(const std::vector<S>& dy, const std::vector<S>& weight) const {
    std::vector<S> dx(row.size() * size_t(in), S(0));
    for_assignments([&](int64_t a, int64_t, int64_t w) {
      for (int64_t o = 0; o < out; ++o) {
        const S g = scale * dy[size_t(a * out + o)];
        for (int64_t i = 0; i < in; ++i) {
          dx[size_t(a * in + i)] += g * weight[size_t(w + o * in + i)];
        }
      }
    });
    return dx;
  }

  // The gradient (E, out, in) that the op adds to dweight.
  std::vector<S> wgrad(const std::vector<S>& dy, const std::vector<S>& x) const {
    std::vector<S> dweight(size_t(experts * out * in), S(0));
    for_assignments([&](int64_t a, int64_t r, int64_t w) {
      for (int64_t o = 0; o < out; ++o) {
        const S g = scale * dy[size_t(a * out + o)];
        for (int64_t i = 0; i < in; ++i) {
          dweight[size_t(w + o * in + i)] += g * x[size_t(r * in + i)];
        }
      }
    });
    return dweight;
  }
};

}  // namespace assay::ref
