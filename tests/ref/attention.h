// Scalar reference of ops/attention.h: the whole row of probabilities, one query at a time.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/ref/complex_step.h"

namespace assay::ref {

template <typename S>
struct Attention {
  int64_t batch, sequence, heads, kv_heads, head_dim;
  std::vector<S> out, lse;        // (B T, Hq D), (B, Hq, T)
  std::vector<char> looked = {};  // (T)   nonzero: positions whose results are needed; empty: all

  bool asked(int64_t t) const { return looked.empty() || looked[size_t(t)] != 0; }

  int64_t stride() const { return (heads + 2 * kv_heads) * head_dim; }
  size_t q_at(int64_t b, int64_t t, int64_t h) const {
    return size_t((b * sequence + t) * stride() + h * head_dim);
  }
  size_t k_at(int64_t b, int64_t t, int64_t h) const {
    return q_at(b, t, heads + h / (heads / kv_heads));
  }
  size_t v_at(int64_t b, int64_t t, int64_t h) const {
    return q_at(b, t, heads + kv_heads + h / (heads / kv_heads));
  }
  size_t out_at(int64_t b, int64_t t, int64_t h) const {
    return size_t(((b * sequence + t) * heads + h) * head_dim);
  }

  // The probabilities (t + 1) of one query; `log_sum` receives its logsumexp.
  std::vector<S> row(const std::vector<S>& qkv, int64_t b, int64_t t, int64_t h, S& log_sum) const {
    std::vector<S> p;
    double largest = -INFINITY;
    for (int64_t j = 0; j <= t; ++j) {
      const size_t q = q_at(b, t, h), k = k_at(b, j, h);
      S s = 0;
      for (size_t d = 0; d < size_t(head_dim); ++d) s += qkv[q + d] * qkv[k + d];
      p.push_back(s / std::sqrt(double(head_dim)));
      largest = std::max(largest, real_part(p.back()));
    }
    S sum = 0;
    for (S& s : p) sum += s = std::exp(s - largest);
    for (S& s : p) s /= sum;
    log_sum = largest + std::log(sum);
    return p;
  }

  void forward(const std::vector<S>& qkv) {
    out.assign(size_t(batch * sequence * heads * head_dim), S(0));
    lse.assign(size_t(batch * heads * sequence), S(0));
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t t = 0; t < sequence; ++t) {
          const auto p = row(qkv, b, t, h, lse[size_t((b * heads + h) * sequence + t)]);
          const size_t o = out_at(b, t, h);
          for (int64_t j = 0; j <= t; ++j) {
            const size_t v = v_at(b, j, h);
            for (size_t d = 0; d < size_t(head_dim); ++d) out[o + d] += p[size_t(j)] * qkv[v + d];
          }
        }
      }
    }
  }

  // dqkv (B T, (Hq + 2 Hkv) D) from dout (B T, Hq D). Call forward first. With `looked`, only
  // needed positions of dqkv are complete.
  std::vector<S> backward(const std::vector<S>& qkv, const std::vector<S>& dout) const {
    std::vector<S> dqkv(qkv.size(), S(0));
    const double scale = 1 / std::sqrt(double(head_dim));
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t h = 0; h < heads; ++h) {
        for (int64_t t = 0; t < sequence; ++t) {
          S unused = 0, delta = 0;
          const auto p = row(qkv, b, t, h, unused);
          const size_t o = out_at(b, t, h), q = q_at(b, t, h);
          for (size_t d = 0; d < size_t(head_dim); ++d) delta += dout[o + d] * out[o + d];
          for (int64_t j = 0; j <= t; ++j) {
            if (!asked(t) && !asked(j)) continue;  // needed by neither position's gradients
            const size_t k = k_at(b, j, h), v = v_at(b, j, h);
            S dp = 0;
            for (size_t d = 0; d < size_t(head_dim); ++d) dp += dout[o + d] * qkv[v + d];
            const S ds = p[size_t(j)] * (dp - delta) * scale;
            for (size_t d = 0; d < size_t(head_dim); ++d) {
              dqkv[q + d] += ds * qkv[k + d];
              dqkv[k + d] += ds * qkv[q + d];
              dqkv[v + d] += p[size_t(j)] * dout[o + d];
            }
          }
        }
      }
    }
    return dqkv;
  }
};

}  // namespace assay::ref
