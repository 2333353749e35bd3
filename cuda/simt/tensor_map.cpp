#include "cuda/simt/tensor_map.h"

#include <cstring>

#include "base/check.h"
#include "cuda/simt/memory.h"
#include "cuda/tensor_map_problem.h"

namespace assay::gpu {

TensorMap make_tensor_map(const TensorMapSpec& spec) {
  const std::string problem = tensor_map_problem(spec);
  CHECK(problem.empty(), "%s", problem.c_str());
  const auto* const first = reinterpret_cast<const std::byte*>(spec.base);
  CHECK(
      simt::is_device_pointer(first) && simt::is_device_pointer(first + tensor_map_bytes(spec) - 1),
      "tensor map of %s: %p and the %ld bytes from there are not in device memory", spec.name,
      static_cast<const void*>(first), long(tensor_map_bytes(spec)));
  simt::SoftTensorMap soft = {};
  soft.magic = simt::kTensorMapMagic;
  soft.rank = uint16_t(spec.rank);
  soft.span = uint16_t(swizzle_span(spec.swizzle));
  soft.base = first;
  soft.bytes = tensor_map_bytes(spec);
  for (int i = 0; i < 5; ++i) {
    const bool used = i < spec.rank;
    soft.dim[i] = used ? spec.dim[i] : 1;
    soft.stride[i] = i == 0 ? 2 : used ? spec.stride_bytes[i - 1] : 0;
    soft.box[i] = int16_t(used ? spec.box[i] : 1);
  }
  TensorMap map;
  std::memcpy(map.opaque, &soft, sizeof(soft));
  return map;
}

}  // namespace assay::gpu
