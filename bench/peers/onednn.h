// The same dense products through oneDNN: of normal numbers, as ours; primitives are made once,
// weights are packed as oneDNN prefers, and it uses as many OpenMP threads as our code.
#pragma once

#include <cstdint>
#include <functional>

#include "machine/limits.h"

namespace assay {

enum class Pass { kForward, kDgrad, kWgrad };

// Returns a function that runs one product (N = rows): kForward y (N, out) = x W^T, kDgrad dx (N,
// in) = dy W, kWgrad dW (out, in) += dy^T x. Empty if this build has no oneDNN or oneDNN has no
// such product.
std::function<void()> onednn_product(Pass pass, LimitType type, int64_t rows, int64_t out,
                                     int64_t in);

}  // namespace assay
