// Factors (alpha, beta) of a library product whose scales are only known on the device.
#pragma once

#include "base/check.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/product_scale.h"

namespace assay::gpu {

struct ProductFactors {
  float* factors;  // out (2)   factor of the product, of the addend
  ProductScale scale;
  float of_added;
};

// One thread; its latency is hidden by the launch of the library kernel.
static __global__ void product_factors_kernel(const __grid_constant__ ProductFactors a) {
  a.factors[0] = a.scale.factor();
  a.factors[1] = a.of_added;
}

enum class Adds { kNothing, kMatrix };

// Writes the factors to the start of the workspace; the library gets the rest.
inline const float* place_product_factors(Exec& on, const ProductScale& scale, Adds adds) {
  constexpr int64_t kBytes = 256;  // the rest stays aligned
  CHECK(on.workspace.dim[0] >= kBytes, "product factors: workspace has %ld bytes, needs %ld",
        long(on.workspace.dim[0]), long(kBytes));
  float* const factors = reinterpret_cast<float*>(on.workspace.data);
  launch(on, {.name = "product_factors", .grid = {1}, .block = {1}}, product_factors_kernel,
         ProductFactors{factors, scale, adds == Adds::kMatrix ? 1.0f : 0.0f});
  on.workspace = on.workspace.rows(kBytes, on.workspace.dim[0] - kBytes);
  return factors;
}

}  // namespace assay::gpu
