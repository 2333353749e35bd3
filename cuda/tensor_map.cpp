#include "cuda/tensor_map.h"

#include <algorithm>

#include "base/check.h"
#include "cuda/tensor_map_problem.h"

namespace assay::gpu {

int64_t tensor_map_bytes(const TensorMapSpec& spec) {
  int64_t bytes = spec.dim[0] * 2;
  for (int i = 1; i < spec.rank; ++i) bytes += (spec.dim[i] - 1) * spec.stride_bytes[i - 1];
  return bytes;
}

std::string tensor_map_problem(const TensorMapSpec& spec) {
  const auto problem = [&](const std::string& text) {
    return strprintf("tensor map of %s: %s", spec.name, text.c_str());
  };
  if (spec.rank < 2 || spec.rank > 5) return problem(strprintf("rank %d, not 2 to 5", spec.rank));
  if (spec.base == nullptr || reinterpret_cast<uintptr_t>(spec.base) % 16 != 0) {
    return problem(
        strprintf("base %p is not aligned to 16 bytes", static_cast<const void*>(spec.base)));
  }
  for (int i = 0; i < spec.rank; ++i) {
    if (spec.dim[i] < 1 || spec.dim[i] > int64_t{1} << 32) {
      return problem(strprintf("dimension %d is %ld, not 1 to 2^32", i, long(spec.dim[i])));
    }
    if (spec.box[i] < 1 || spec.box[i] > 256) {
      return problem(strprintf("box %d in dimension %d, not 1 to 256", spec.box[i], i));
    }
  }
  for (int i = 0; i + 1 < spec.rank; ++i) {
    const int64_t stride = spec.stride_bytes[i];
    if (stride % 16 != 0 || stride < 0 || stride >= int64_t{1} << 40) {
      return problem(strprintf("stride of dimension %d is %ld bytes, not a multiple of 16", i + 1,
                               long(stride)));
    }
    if (i > 0 && stride % std::max<int64_t>(spec.stride_bytes[i - 1], 1) != 0) {
      return problem(strprintf("stride of dimension %d is %ld bytes, not a multiple of %ld", i + 1,
                               long(stride), long(spec.stride_bytes[i - 1])));
    }
    if (i == 0 && stride < spec.dim[0] * 2) {
      return problem(strprintf("rows of %ld bytes overlap: the stride is %ld",
                               long(spec.dim[0] * 2), long(stride)));
    }
  }
  const int row = spec.box[0] * 2;
  if (row % 16 != 0) return problem(strprintf("box rows of %d bytes, not a multiple of 16", row));
  if (spec.swizzle != Swizzle::kNone && row != swizzle_span(spec.swizzle)) {
    return problem(
        strprintf("box rows of %d bytes with a swizzle of %d", row, swizzle_span(spec.swizzle)));
  }
  return "";
}

}  // namespace assay::gpu
