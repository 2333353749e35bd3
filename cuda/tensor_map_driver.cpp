// make_tensor_map on a GPU, by the driver. Its function is looked up at run time, so that the
// program starts without libcuda.
#include <cuda.h>

#include <cstring>

#include "base/check.h"
#include "cuda/cuda_error.h"
#include "cuda/tensor_map_problem.h"

namespace assay::gpu {

namespace {

constexpr unsigned kSinceVersion = 12000;  // the driver version of the signature used here

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode encode_function() {
  static const Encode encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, kSinceVersion,
                                                cudaEnableDefault, &found),
               "looking for cuTensorMapEncodeTiled in the driver");
    if (found != cudaDriverEntryPointSuccess || function == nullptr) {
      throw UserError("the NVIDIA driver has no cuTensorMapEncodeTiled",
                      "update the driver; --device cpu works meanwhile");
    }
    return reinterpret_cast<Encode>(function);
  }();
  return encode;
}

CUtensorMapSwizzle driver_swizzle(Swizzle swizzle) {
  switch (swizzle) {
    case Swizzle::kNone:
      return CU_TENSOR_MAP_SWIZZLE_NONE;
    case Swizzle::k32:
      return CU_TENSOR_MAP_SWIZZLE_32B;
    case Swizzle::k64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    case Swizzle::k128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
  }
  return CU_TENSOR_MAP_SWIZZLE_NONE;
}

}  // namespace

TensorMap make_tensor_map(const TensorMapSpec& spec) {
  const std::string problem = tensor_map_problem(spec);
  CHECK(problem.empty(), "%s", problem.c_str());
  cuuint64_t dim[5], stride[4];
  cuuint32_t box[5], step[5];
  for (int i = 0; i < spec.rank; ++i) {
    dim[i] = cuuint64_t(spec.dim[i]);
    box[i] = cuuint32_t(spec.box[i]);
    step[i] = 1;
    if (i > 0) stride[i - 1] = cuuint64_t(spec.stride_bytes[i - 1]);
  }
  CUtensorMap driver;
  const CUresult status =
      encode_function()(&driver, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, cuuint32_t(spec.rank),
                        const_cast<bf16*>(spec.base), dim, stride, box, step,
                        CU_TENSOR_MAP_INTERLEAVE_NONE, driver_swizzle(spec.swizzle),
                        CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  CHECK(status == CUDA_SUCCESS,
        "tensor map of %s: the driver rejects it (%d): rank %d, dim %ld x %ld, box %d x %d",
        spec.name, int(status), spec.rank, long(spec.dim[0]), long(spec.dim[1]), spec.box[0],
        spec.box[1]);
  TensorMap map;
  // CUtensorMap is aligned to 64 bytes before CUDA 13.
  static_assert(sizeof(driver) == sizeof(map.opaque) && alignof(TensorMap) >= alignof(CUtensorMap));
  std::memcpy(map.opaque, &driver, sizeof(map.opaque));
  return map;
}

}  // namespace assay::gpu
