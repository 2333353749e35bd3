// The parts of the scalar model: loops over a scalar type S (double, complex, Tracked) that share
// nothing with ops/. Rows are tokens: a matrix (N, C) is a vector of N rows. Branches depend on the
// real part.
#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/model/tape.h"
#include "tests/ref/complex_step.h"

namespace assay::ref {

template <typename S>
using Rows = std::vector<std::vector<S>>;

// y (N, out) = x (N, in) W^T, where W (out, in) starts at element `first` of w.
template <typename S>
Rows<S> scalar_linear(const Rows<S>& x, const std::vector<S>& w, size_t out, size_t first = 0) {
  Rows<S> y(x.size(), std::vector<S>(out, S(0.0)));
  for (size_t n = 0; n < x.size(); ++n)
    for (size_t o = 0; o < out; ++o)
      for (size_t i = 0; i < x[n].size(); ++i) y[n][o] += x[n][i] * w[first + o * x[n].size() + i];
  return y;
}

// RMSNorm of elements [at, at + w.size()) of one row, in place.
template <typename S>
void scalar_rmsnorm(std::vector<S>& x, size_t at, const std::vector<S>& w, double eps) {
  using std::sqrt;
  const double width = static_cast<double>(w.size());
  S squares(0.0);
  for (size_t c = 0; c < w.size(); ++c) squares += x[at + c] * x[at + c];
  const S rstd = S(1.0) / sqrt(squares / S(width) + S(eps));
  for (size_t c = 0; c < w.size(); ++c) x[at + c] = w[c] * x[at + c] * rstd;
}

template <typename S>
Rows<S> scalar_rmsnorm(Rows<S> x, const std::vector<S>& w, double eps) {
  for (std::vector<S>& row : x) scalar_rmsnorm(row, 0, w, eps);
  return x;
}

// RoPE of one head of one row, in place: the pair (d, d + D/2) is rotated by t theta^(-2d/D).
template <typename S>
void scalar_rope(std::vector<S>& x, size_t at, size_t width, size_t position, double theta) {
  const size_t half = width / 2;
  for (size_t d = 0; d < half; ++d) {
    const double angle =
        static_cast<double>(position) *
        std::pow(theta, -2.0 * static_cast<double>(d) / static_cast<double>(width));
    const S a = x[at + d], b = x[at + half + d];
    x[at + d] = a * S(std::cos(angle)) - b * S(std::sin(angle));
    x[at + half + d] = b * S(std::cos(angle)) + a * S(std::sin(angle));
  }
}

template <typename S>
S scalar_logsumexp(const std::vector<S>& z) {
  using std::exp;
  using std::log;
  double top = -INFINITY;
  for (const S& v : z) top = std::max(top, real_part(v));
  S sum(0.0);
  for (const S& v : z) sum += exp(v - S(top));
  return log(sum) + S(top);
}

template <typename S>
std::vector<S> scalar_softmax(std::vector<S> z) {
  using std::exp;
  const S lse = scalar_logsumexp(z);
  for (S& v : z) v = exp(v - lse);
  return z;
}

template <typename S>
S scalar_sigmoid(const S& x) {
  using std::exp;
  return S(1.0) / (S(1.0) + exp(-x));
}

struct HeadShape {
  size_t heads, kv_heads, width;
};

// qkv (N, (Hq + 2 Hkv) D) with rotated queries and keys -> (N, Hq D). Each `sequence` consecutive
// rows are one sequence, with causal attention.
template <typename S>
Rows<S> scalar_attention(const Rows<S>& qkv, HeadShape shape, size_t sequence) {
  const size_t width = shape.width, keys = shape.heads * width;
  const size_t values = keys + shape.kv_heads * width;
  const double scale = 1.0 / std::sqrt(static_cast<double>(width));
  Rows<S> out(qkv.size(), std::vector<S>(shape.heads * width, S(0.0)));
  for (size_t n = 0; n < qkv.size(); ++n)
    for (size_t h = 0; h < shape.heads; ++h) {
      const size_t start = n - n % sequence, group = h / (shape.heads / shape.kv_heads);
      std::vector<S> score;
      for (size_t j = start; j <= n; ++j) {
        S dot(0.0);
        for (size_t d = 0; d < width; ++d)
          dot += qkv[n][h * width + d] * qkv[j][keys + group * width + d];
        score.push_back(dot * S(scale));
      }
      const std::vector<S> p = scalar_softmax(score);
      for (size_t j = start; j <= n; ++j)
        for (size_t d = 0; d < width; ++d)
          out[n][h * width + d] += p[j - start] * qkv[j][values + group * width + d];
    }
  return out;
}

// SwiGLU FFN of one expert: gate_up (2F, C) starts at element `up_at`, down (C, F) at `down_at`.
template <typename S>
Rows<S> scalar_swiglu(const Rows<S>& x, const std::vector<S>& gate_up, const std::vector<S>& down,
                      size_t ffn, size_t up_at = 0, size_t down_at = 0) {
  const Rows<S> both = scalar_linear(x, gate_up, 2 * ffn, up_at);
  Rows<S> inner(x.size(), std::vector<S>(ffn));
  for (size_t n = 0; n < x.size(); ++n)
    for (size_t f = 0; f < ffn; ++f)
      inner[n][f] = both[n][f] * scalar_sigmoid(both[n][f]) * both[n][ffn + f];
  return scalar_linear(inner, down, x.empty() ? 0 : x[0].size(), down_at);
}

}  // namespace assay::ref
