#include "ops/gpu/absent.h"

#include "tests/ops/cub/by_cub.h"

namespace assay {

namespace gpu {
ASSAY_GPU_ABSENT(sort_positions, SortPositions)
[[gnu::weak]] int64_t sort_positions_scratch_bytes(int64_t) {
  return 0;
}
}  // namespace gpu

namespace by_cub {

using gpu::refuse_absent;

ASSAY_GPU_ABSENT(dispatch, Dispatch)
ASSAY_GPU_ABSENT(sort_positions, gpu::SortPositions)
[[gnu::weak]] int64_t workspace_bytes(int64_t) {
  return 0;
}

}  // namespace by_cub

}  // namespace assay
