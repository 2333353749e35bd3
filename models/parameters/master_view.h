// The master of one parameter: fp32, or with optimizer.state bf16 that of a matrix.
#pragma once

#include "base/bf16.h"
#include "base/view.h"

namespace assay {

struct MasterView {
  View<const float, 1> fp32;
  View<const bf16, 1> rounded;  // instead of fp32, which is empty then
};

}  // namespace assay
