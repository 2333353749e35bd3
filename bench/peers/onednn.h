// The same dense products through oneDNN: primitives made once, weights packed as it wants them, on
// as many OpenMP threads as ours.
#pragma once

#include <cstdint>
#include <functional>

#include "machine/limits.h"

namespace assay {

enum class Pass { kForward, kDgrad, kWgrad };

// Runs one product. Empty where this build has no oneDNN, or oneDNN has no such product.
std::function<void()> onednn_product(Pass pass, LimitType type, int64_t rows, int64_t out,
                                     int64_t in);

}  // namespace assay
