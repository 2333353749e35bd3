// Scalar reference of ops/head_loss.h.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "tests/ref/complex_step.h"

namespace assay::ref {

template <typename S>
struct HeadLoss {
  int64_t width, vocab;
  std::vector<int32_t> target;
  int32_t mask_id;
  double grad_scale, logit_gain;
  std::vector<S> nats;  // (N)

  bool counted(size_t i) const { return target[i] >= 0 && target[i] != mask_id; }

  // The logits of row i.
  std::vector<S> logits(const std::vector<S>& x, const std::vector<S>& weight, size_t i) const {
    std::vector<S> z(size_t(vocab), S(0));
    for (size_t v = 0; v < size_t(vocab); ++v) {
      for (size_t c = 0; c < size_t(width); ++c) {
        z[v] += logit_gain * x[i * size_t(width) + c] * weight[v * size_t(width) + c];
      }
    }
    return z;
  }
  static S logsumexp(const std::vector<S>& z) {
    double largest = -INFINITY;
    for (const S& s : z) largest = std::max(largest, real_part(s));
    S sum = 0;
    for (const S& s : z) sum += std::exp(s - largest);
    return largest + std::log(sum);
  }

  // True if the target of row i is the first of its largest logits. `margin` receives its distance
  // to the largest other logit.
  bool most_likely(const std::vector<double>& z, size_t i, double& margin) const {
    double others = -INFINITY;
    bool first = true;
    for (size_t v = 0; v < z.size(); ++v) {
      if (int32_t(v) == target[i]) continue;
      others = std::max(others, z[v]);
      if (int32_t(v) < target[i] && z[v] >= z[size_t(target[i])]) first = false;
    }
    margin = std::abs(z[size_t(target[i])] - others);
    return first && z[size_t(target[i])] >= others;
  }

  // The sum of the counted nats.
  S forward(const std::vector<S>& x, const std::vector<S>& weight) {
    nats.assign(target.size(), S(0));
    S sum = 0;
    for (size_t i = 0; i < target.size(); ++i) {
      if (!counted(i)) continue;
      const auto z = logits(x, weight, i);
      nats[i] = logsumexp(z) - z[size_t(target[i])];
      sum += nats[i];
    }
    return sum;
  }

  // Gradients of grad_scale * forward().
  void backward(const std::vector<S>& x, const std::vector<S>& weight, std::vector<S>& dx,
                std::vector<S>& dweight) const {
    dx.assign(x.size(), S(0));
    dweight.assign(weight.size(), S(0));
    for (size_t i = 0; i < target.size(); ++i) {
      if (!counted(i)) continue;
      const auto z = logits(x, weight, i);
      const S lse = logsumexp(z);
      for (size_t v = 0; v < size_t(vocab); ++v) {
        const S hit = int32_t(v) == target[i] ? 1 : 0;
        const S dz = grad_scale * logit_gain * (std::exp(z[v] - lse) - hit);
        for (size_t c = 0; c < size_t(width); ++c) {
          dx[i * size_t(width) + c] += dz * weight[v * size_t(width) + c];
          dweight[v * size_t(width) + c] += dz * x[i * size_t(width) + c];
        }
      }
    }
  }
};

}  // namespace assay::ref
