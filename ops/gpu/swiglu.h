// SwiGLU of one element, for every kernel that applies it. T: type that the result is rounded to.
#pragma once

#include <cmath>

#include "cuda/gpu.h"

namespace assay::gpu {

// For float within a few ulp; for bf16 by two approximate instructions.
template <typename T>
GPU_DEVICE float sigmoid(float x) {
  if constexpr (sizeof(T) == 2) return reciprocal_approx(1.0f + exp_approx(-x));
  return 1.0f / (1.0f + expf(-x));
}

template <typename T>
GPU_DEVICE float swiglu(float gate, float up) {
  return gate * sigmoid<T>(gate) * up;
}

// dh / dgate and dh / dup.
struct SwigluSlopes {
  float gate, up;
};
template <typename T>
GPU_DEVICE SwigluSlopes swiglu_slopes(float gate, float up) {
  const float s = sigmoid<T>(gate), silu = gate * s;
  return {up * (s + silu * (1.0f - s)), silu};
}

}  // namespace assay::gpu
