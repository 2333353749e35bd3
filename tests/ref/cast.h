// Reference of the roundings to bf16 (ops/cast.h, ops/adamw_bf16.h) without bit arithmetic: the
// neighbours of x among bf16, by scaling to integers.
#pragma once

#include <cmath>
#include <cstdint>

namespace assay::ref {

// Distance of neighbouring bf16 around a finite x (8 significant bits, smallest step 2^-133).
inline double bf16_step(double x) {
  int exponent = 0;
  std::frexp(x, &exponent);
  return std::ldexp(1.0, x == 0 || exponent - 8 < -133 ? -133 : exponent - 8);
}

// The neighbour after the largest bf16 is infinity.
inline double bf16_finite(double x) {
  return std::abs(x) >= 0x1p128 ? std::copysign(INFINITY, x) : x;
}

inline double bf16_nearest_even(double x) {
  if (!std::isfinite(x)) return x;
  return bf16_finite(std::nearbyint(x / bf16_step(x)) * bf16_step(x));
}

// Rounds towards zero, then away by one step if the remaining fraction of the step plus random16 /
// 2^16 reaches 1.
inline double bf16_stochastic(double x, uint32_t random16) {
  if (!std::isfinite(x)) return x;
  const double step = bf16_step(x);
  const double down = std::trunc(x / step) * step;
  const double carry = std::abs(x - down) / step + random16 / 65536.0;
  return bf16_finite(carry >= 1 ? down + std::copysign(step, x) : down);
}

}  // namespace assay::ref
