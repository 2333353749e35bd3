// The rules of tensor maps (cuda/tensor_map.h), for those who make them.
#pragma once

#include <string>

#include "cuda/tensor_map.h"

namespace assay::gpu {

// The first rule that a spec breaks (the driver's rules, from the documentation of
// cuTensorMapEncodeTiled); "" if it breaks none.
std::string tensor_map_problem(const TensorMapSpec& spec);

}  // namespace assay::gpu
