#include "ops/grouped_swiglu.h"

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "cuda/context.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/grouped/gpu_tensor.h"
#include "ops/grouped/gpu_work_list.h"
#include "ops/swiglu.h"

namespace assay {

namespace {

void check_rows_and_offsets(const char* op, View<const int32_t, 1> offsets, int64_t experts,
                            View<const int32_t, 1> row, int64_t rows, int64_t assignments) {
  CHECK(offsets.dim[0] == experts + 1 &&
            (row.empty() ? rows == assignments : row.dim[0] == assignments),
        "%s: offsets (%ld) for %ld experts, row (%ld), %ld rows for %ld assignments", op,
        long(offsets.dim[0]), long(experts), long(row.dim[0]), long(rows), long(assignments));
}

}  // namespace

// The rows are copied in pieces of 16 bytes. By mma.sync it has not been compared with cuBLASLt's
// product.
bool grouped_swiglu_dgrad_pays(Exec on, int64_t out, int64_t ffn) {
  return on.gpu && on.gpu->kind.products == gpu::Products::kWgmma && out % 8 == 0 && ffn % 8 == 0;
}
int64_t grouped_swiglu_dgrad_workspace_bytes(int64_t rows) {
  return gpu::grouped_list_bytes(rows, 1);
}

// The CPU runs the product and SwiGLU one after the other, here and in dgrad.
template <typename T>
void grouped_swiglu_forward(Exec on, const GroupedSwigluForward<T>& a) {
  const auto& w = a.weight.plain;
  CHECK(a.gate_up.dim[0] == a.h.dim[0] && a.gate_up.dim[1] == 2 * a.h.dim[1] &&
            a.gate_up.dim[1] == w.dim[1] && a.x.dim[1] == w.dim[2],
        "grouped_swiglu_forward: %s",
        shapes("h", a.h, "gate_up", a.gate_up, "x", a.x, "weight", w).c_str());
  check_rows_and_offsets("grouped_swiglu_forward", a.offsets, w.dim[0], a.row, a.x.dim[0],
                         a.h.dim[0]);
  check_product_scale("grouped_swiglu_forward", a.scale);
  const ProfileScope timed(on, "grouped_swiglu_forward", grouped_swiglu_forward_cost(a));
  if (on.gpu) return gpu::grouped_swiglu_forward(on, a);
  grouped_linear_forward<T>(on, {.y = a.gate_up,
                                 .x = a.x,
                                 .row = a.row,
                                 .offsets = a.offsets,
                                 .weight = a.weight,
                                 .scale = a.scale});
  swiglu_forward<T>(on, {.h = a.h, .amax = a.amax, .gate_up = a.gate_up});
}

template <typename T>
void grouped_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<T>& a) {
  const auto& w = a.weight.plain;
  CHECK(a.dgate_up.dim[0] == a.dy.dim[0] && a.gate_up.dim[0] == a.dy.dim[0] &&
            a.dh.dim[0] == a.dy.dim[0] && a.dh.dim[1] == w.dim[2] && a.dy.dim[1] == w.dim[1] &&
            a.gate_up.dim[1] == 2 * w.dim[2] && a.dgate_up.dim[1] == 2 * w.dim[2],
        "grouped_swiglu_dgrad: %s",
        shapes("dgate_up", a.dgate_up, "dh", a.dh, "dy", a.dy, "gate_up", a.gate_up, "weight", w)
            .c_str());
  if (!a.offsets.empty() || w.dim[0] != 1) {
    check_rows_and_offsets("grouped_swiglu_dgrad", a.offsets, w.dim[0], {}, a.dy.dim[0],
                           a.dy.dim[0]);
  }
  check_product_scale("grouped_swiglu_dgrad", a.scale);
  const ProfileScope timed(on, "grouped_swiglu_dgrad", grouped_swiglu_dgrad_cost(a));
  if (on.gpu) return gpu::grouped_swiglu_dgrad(on, a);
  grouped_linear_dgrad<T>(
      on, {.dx = a.dh, .dy = a.dy, .offsets = a.offsets, .weight = a.weight, .scale = a.scale});
  swiglu_backward<T>(on,
                     {.dgate_up = a.dgate_up, .amax = a.amax, .dh = a.dh, .gate_up = a.gate_up});
}

template void grouped_swiglu_forward<float>(Exec, const GroupedSwigluForward<float>&);
template void grouped_swiglu_forward<bf16>(Exec, const GroupedSwigluForward<bf16>&);
template void grouped_swiglu_dgrad<float>(Exec, const GroupedSwigluDgrad<float>&);
template void grouped_swiglu_dgrad<bf16>(Exec, const GroupedSwigluDgrad<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(grouped_swiglu_forward, GroupedSwigluForward<float>)
ASSAY_GPU_ABSENT(grouped_swiglu_forward, GroupedSwigluForward<bf16>)
ASSAY_GPU_ABSENT(grouped_swiglu_dgrad, GroupedSwigluDgrad<float>)
ASSAY_GPU_ABSENT(grouped_swiglu_dgrad, GroupedSwigluDgrad<bf16>)
ASSAY_GPU_ABSENT(grouped_swiglu_forward_wgmma, GroupedSwigluForward<bf16>)
ASSAY_GPU_ABSENT(grouped_swiglu_dgrad_wgmma, GroupedSwigluDgrad<bf16>)
}  // namespace gpu

}  // namespace assay
