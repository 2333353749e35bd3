// The step of one element, for both AdamW kernels.
#pragma once

#include "cuda/gpu.h"
#include "ops/adamw_constants.h"

namespace assay::gpu {

struct AdamWElement {
  float master, m, v;
  float off = 0;  // the update: what the step subtracts from the master
};

// The CPU op's arithmetic, in the same order. fmaf is explicit where g++ -march=native contracts,
// so that rounding is not left to the compiler.
GPU_DEVICE AdamWElement updated(const AdamWConstants& s, const AdamWElement& x, float g) {
  const float m = fmaf(s.beta1, x.m, s.rest1 * g);
  const float v = fmaf(s.beta2, x.v, s.rest2 * (g * g));
  const float step = s.step_size * m / fmaf(sqrtf(v), s.root_scale, s.eps);
  const float off = fmaf(s.decay, x.master, step);
  return {x.master - off, m, v, off};
}

}  // namespace assay::gpu
