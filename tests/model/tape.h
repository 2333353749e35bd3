// Reverse-mode differentiation: run a scalar function on Tracked numbers, which record their
// operations, then walk the tape backwards for all derivatives at once. Only for the scalar model,
// whose gradient is also proved by complex step.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

namespace assay::ref {

// Node i is computed from at most two earlier nodes; slope = d node / d input.
class Tape {
 public:
  struct Node {
    int32_t input[2];
    double slope[2];
  };
  int32_t add(int32_t a, double slope_a, int32_t b = -1, double slope_b = 0) {
    nodes_.push_back({{a, b}, {slope_a, slope_b}});
    return static_cast<int32_t>(nodes_.size()) - 1;
  }
  int32_t leaf() { return add(-1, 0); }
  void clear() { nodes_.clear(); }

  // d result / d node, for all nodes.
  std::vector<double> derivatives(int32_t result) const {
    std::vector<double> d(nodes_.size(), 0.0);
    d[static_cast<size_t>(result)] = 1;
    for (size_t i = nodes_.size(); i-- > 0;)
      for (int k = 0; k < 2; ++k)
        if (nodes_[i].input[k] >= 0)
          d[static_cast<size_t>(nodes_[i].input[k])] += nodes_[i].slope[k] * d[i];
    return d;
  }

  static Tape& current() {
    thread_local Tape tape;
    return tape;
  }

 private:
  std::vector<Node> nodes_;
};

struct Tracked {
  double value = 0;
  int32_t node = -1;  // -1 is a constant

  Tracked() = default;
  Tracked(double constant) : value(constant) {}
  Tracked(double v, int32_t n) : value(v), node(n) {}
  Tracked& operator+=(const Tracked& b);
  Tracked& operator-=(const Tracked& b);
  Tracked& operator*=(const Tracked& b);
  Tracked& operator/=(const Tracked& b);
};

inline Tracked tracked(double value, const Tracked& a, double slope_a) {
  if (a.node < 0) return {value};
  return {value, Tape::current().add(a.node, slope_a)};
}
inline Tracked tracked(double value, const Tracked& a, double slope_a, const Tracked& b,
                       double slope_b) {
  if (a.node < 0) return tracked(value, b, slope_b);
  if (b.node < 0) return tracked(value, a, slope_a);
  return {value, Tape::current().add(a.node, slope_a, b.node, slope_b)};
}

inline Tracked operator+(const Tracked& a, const Tracked& b) {
  return tracked(a.value + b.value, a, 1, b, 1);
}
inline Tracked operator-(const Tracked& a, const Tracked& b) {
  return tracked(a.value - b.value, a, 1, b, -1);
}
inline Tracked operator-(const Tracked& a) {
  return tracked(-a.value, a, -1);
}
inline Tracked operator*(const Tracked& a, const Tracked& b) {
  return tracked(a.value * b.value, a, b.value, b, a.value);
}
inline Tracked operator/(const Tracked& a, const Tracked& b) {
  const double q = a.value / b.value;
  return tracked(q, a, 1 / b.value, b, -q / b.value);
}
inline Tracked exp(const Tracked& a) {
  const double e = std::exp(a.value);
  return tracked(e, a, e);
}
inline Tracked log(const Tracked& a) {
  return tracked(std::log(a.value), a, 1 / a.value);
}
inline Tracked sqrt(const Tracked& a) {
  const double r = std::sqrt(a.value);
  return tracked(r, a, 0.5 / r);
}
inline Tracked& Tracked::operator+=(const Tracked& b) {
  return *this = *this + b;
}
inline Tracked& Tracked::operator-=(const Tracked& b) {
  return *this = *this - b;
}
inline Tracked& Tracked::operator*=(const Tracked& b) {
  return *this = *this * b;
}
inline Tracked& Tracked::operator/=(const Tracked& b) {
  return *this = *this / b;
}
inline double real_part(const Tracked& a) {
  return a.value;
}

}  // namespace assay::ref
