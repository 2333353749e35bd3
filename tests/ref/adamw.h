// Scalar reference of ops/adamw.h, line by line as in the formula.
#pragma once

#include <cmath>
#include <cstdint>

namespace assay::ref {

struct AdamW {
  double p, m, v;

  void step(double grad, double lr, double beta1, double beta2, double eps, double weight_decay,
            int64_t t) {
    p -= lr * weight_decay * p;
    m = beta1 * m + (1 - beta1) * grad;
    v = beta2 * v + (1 - beta2) * grad * grad;
    const double m_hat = m / (1 - std::pow(beta1, double(t)));
    const double v_hat = v / (1 - std::pow(beta2, double(t)));
    p -= lr * m_hat / (std::sqrt(v_hat) + eps);
  }
};

}  // namespace assay::ref
