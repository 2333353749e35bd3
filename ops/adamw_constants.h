// The factors of one AdamW step, computed once in double and rounded to float: every backend uses
// the same.
#pragma once

#include <cmath>

namespace assay {

struct AdamWConstants {
  float decay, beta1, rest1, beta2, rest2, step_size, root_scale, eps;
};

// Op: AdamW or AdamWBf16.
template <typename Op>
AdamWConstants adamw_constants(const Op& a) {
  const double correction1 = 1 - std::pow(double(a.beta1), double(a.step));
  const double correction2 = 1 - std::pow(double(a.beta2), double(a.step));
  return {.decay = float(double(a.lr) * double(a.weight_decay)),
          .beta1 = a.beta1,
          .rest1 = float(1 - double(a.beta1)),
          .beta2 = a.beta2,
          .rest2 = float(1 - double(a.beta2)),
          .step_size = float(double(a.lr) / correction1),
          .root_scale = float(1 / std::sqrt(correction2)),
          .eps = a.eps};
}

}  // namespace assay
