#include "ops/gpu/absent.h"

#include "tests/ops/cub/by_cub.h"

namespace assay {

namespace gpu {
ASSAY_GPU_ABSENT(sort_positions, SortPositions)
}  // namespace gpu

namespace by_cub {

using gpu::refuse_absent;

ASSAY_GPU_ABSENT(dispatch, Dispatch)
ASSAY_GPU_ABSENT(sort_positions, gpu::SortPositions)

}  // namespace by_cub

}  // namespace assay
