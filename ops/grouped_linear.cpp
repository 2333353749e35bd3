#include "ops/grouped_linear.h"

#include <algorithm>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/cpu_gemm/ragged.h"
#include "ops/gpu/absent.h"
#include "ops/grouped/gpu_tensor.h"
#include "ops/grouped/gpu_work_list.h"

namespace assay {

namespace {

template <typename T>
void check_weight(Exec on, const char* op, const WeightStack<T>& w) {
  if (on.gpu) return;  // it reads the plain weight
  const int64_t want = weight_stack_pack_bytes<T>(w.plain.dim[0], w.plain.dim[1], w.plain.dim[2]);
  CHECK(w.packed.dim[0] == want, "%s: packed %s has %ld bytes, needs %ld", op,
        shapes("weight", w.plain).c_str(), long(w.packed.dim[0]), long(want));
}

// offsets must be E+1 numbers from 0 to A that never decrease; dgrad may leave them out if E is 1.
void check_offsets(Exec on, const char* op, View<const int32_t, 1> offsets, int64_t experts,
                   int64_t assignments) {
  if (offsets.empty() && experts == 1) return;  // the only expert has all rows
  CHECK(offsets.dim[0] == experts + 1, "%s: offsets (%ld) for %ld experts", op,
        long(offsets.dim[0]), long(experts));
  if (on.gpu) return;  // offsets are on the device
  CHECK(offsets[0] == 0 && offsets[experts] == assignments,
        "%s: offsets from %d to %d for %ld assignments", op, offsets[0], offsets[experts],
        long(assignments));
  for (int64_t e = 0; e < experts; ++e) {
    CHECK(offsets[e] <= offsets[e + 1], "%s: offsets[%ld] %d, offsets[%ld] %d", op, long(e),
          offsets[e], long(e + 1), offsets[e + 1]);
  }
}

void check_rows(const char* op, View<const int32_t, 1> row, int64_t rows, int64_t assignments) {
  if (row.empty()) {
    CHECK(rows == assignments, "%s: x has %ld rows for %ld assignments and no row", op, long(rows),
          long(assignments));
  } else {
    CHECK(row.dim[0] == assignments, "%s: row (%ld) for %ld assignments", op, long(row.dim[0]),
          long(assignments));
  }
}

}  // namespace

namespace cpu {

template <typename T>
void grouped_linear_forward(Exec on, const GroupedForward<T>& a) {
  const int64_t out = a.y.dim[1], in = a.x.dim[1];
  multiply_segments<T, T>(on, {.c = a.y.data,
                               .start = nullptr,
                               .c_stride = out,
                               .a = a.x.data,
                               .a_stride = in,
                               .row = a.row.data,
                               .b = a.weight.packed.data,
                               .b_bytes = weight_pack_bytes<T>(out, in),
                               .cols = out,
                               .k = in,
                               .segments = {a.offsets.data, a.weight.plain.dim[0]},
                               .scale = a.scale});
}

template <typename T>
void grouped_linear_dgrad(Exec on, const GroupedDgrad<T>& a) {
  const int64_t out = a.dy.dim[1], in = a.dx.dim[1];
  const int32_t all_rows[] = {0, int32_t(a.dy.dim[0])};
  multiply_segments<T, T>(
      on, {.c = a.dx.data,
           .start = nullptr,
           .c_stride = in,
           .a = a.dy.data,
           .a_stride = out,
           .row = nullptr,
           .b = a.weight.packed.data + weight_pack_dgrad_offset<T>(out, in),
           .b_bytes = weight_pack_bytes<T>(out, in),
           .cols = in,
           .k = out,
           .segments = {a.offsets.empty() ? all_rows : a.offsets.data, a.weight.plain.dim[0]},
           .scale = a.scale});
}

template <typename T>
void grouped_linear_wgrad(Exec on, const GroupedWgrad<T>& a) {
  accumulate_segments<T>(on, {.c = a.dweight.data,
                              .sum = a.sum,
                              .a = a.dy.data,
                              .a_stride = a.dweight.dim[1],
                              .b = a.x.data,
                              .row = a.row.data,
                              .rows = a.dweight.dim[1],
                              .cols = a.dweight.dim[2],
                              .segments = {a.offsets.data, a.dweight.dim[0]},
                              .scale = a.scale});
}

}  // namespace cpu

template <typename T>
int64_t grouped_workspace_bytes(Backend backend, int64_t assignments, int64_t experts, int64_t out,
                                int64_t in, int64_t most_rows) {
  return backend == Backend::kGpu
             ? gpu::grouped_parts_bytes(assignments, experts, out, in, most_rows)
             : accumulate_workspace_bytes<T>(assignments, experts, in);
}

template <typename T>
void grouped_linear_forward(Exec on, const GroupedForward<T>& a) {
  const auto& w = a.weight.plain;
  CHECK(a.y.dim[1] == w.dim[1] && a.x.dim[1] == w.dim[2], "grouped_linear_forward: %s",
        shapes("y", a.y, "x", a.x, "weight", w).c_str());
  CHECK(!a.offsets.empty(), "grouped_linear_forward: no offsets");
  check_offsets(on, "grouped_linear_forward", a.offsets, w.dim[0], a.y.dim[0]);
  check_rows("grouped_linear_forward", a.row, a.x.dim[0], a.y.dim[0]);
  check_weight(on, "grouped_linear_forward", a.weight);
  check_product_scale("grouped_linear_forward", a.scale);
  const ProfileScope timed(on, "grouped_linear_forward", grouped_linear_forward_cost(a));
  if (on.gpu) return gpu::grouped_linear_forward(on, a);
  cpu::grouped_linear_forward(on, a);
}

template <typename T>
void grouped_linear_dgrad(Exec on, const GroupedDgrad<T>& a) {
  const auto& w = a.weight.plain;
  CHECK(a.dx.dim[0] == a.dy.dim[0] && a.dy.dim[1] == w.dim[1] && a.dx.dim[1] == w.dim[2],
        "grouped_linear_dgrad: %s", shapes("dx", a.dx, "dy", a.dy, "weight", w).c_str());
  check_offsets(on, "grouped_linear_dgrad", a.offsets, w.dim[0], a.dy.dim[0]);
  check_weight(on, "grouped_linear_dgrad", a.weight);
  check_product_scale("grouped_linear_dgrad", a.scale);
  const ProfileScope timed(on, "grouped_linear_dgrad", grouped_linear_dgrad_cost(a));
  if (on.gpu) return gpu::grouped_linear_dgrad(on, a);
  cpu::grouped_linear_dgrad(on, a);
}

template <typename T>
void grouped_linear_wgrad(Exec on, const GroupedWgrad<T>& a) {
  const auto& dw = a.dweight;
  CHECK(a.dy.dim[1] == dw.dim[1] && a.x.dim[1] == dw.dim[2], "grouped_linear_wgrad: %s",
        shapes("dweight", dw, "dy", a.dy, "x", a.x).c_str());
  CHECK(!a.offsets.empty(), "grouped_linear_wgrad: no offsets");
  check_offsets(on, "grouped_linear_wgrad", a.offsets, dw.dim[0], a.dy.dim[0]);
  check_rows("grouped_linear_wgrad", a.row, a.x.dim[0], a.dy.dim[0]);
  check_product_scale("grouped_linear_wgrad", a.scale);
  const ProfileScope timed(on, "grouped_linear_wgrad", grouped_linear_wgrad_cost(a));
  if (on.gpu) return gpu::grouped_linear_wgrad(on, a);
  cpu::grouped_linear_wgrad(on, a);
}

template int64_t grouped_workspace_bytes<float>(Backend, int64_t, int64_t, int64_t, int64_t,
                                                int64_t);
template int64_t grouped_workspace_bytes<bf16>(Backend, int64_t, int64_t, int64_t, int64_t,
                                               int64_t);
template void grouped_linear_forward<float>(Exec, const GroupedForward<float>&);
template void grouped_linear_forward<bf16>(Exec, const GroupedForward<bf16>&);
template void grouped_linear_dgrad<float>(Exec, const GroupedDgrad<float>&);
template void grouped_linear_dgrad<bf16>(Exec, const GroupedDgrad<bf16>&);
template void grouped_linear_wgrad<float>(Exec, const GroupedWgrad<float>&);
template void grouped_linear_wgrad<bf16>(Exec, const GroupedWgrad<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(grouped_linear_forward, GroupedForward<float>)
ASSAY_GPU_ABSENT(grouped_linear_forward, GroupedForward<bf16>)
ASSAY_GPU_ABSENT(grouped_linear_dgrad, GroupedDgrad<float>)
ASSAY_GPU_ABSENT(grouped_linear_dgrad, GroupedDgrad<bf16>)
ASSAY_GPU_ABSENT(grouped_linear_wgrad, GroupedWgrad<float>)
ASSAY_GPU_ABSENT(grouped_linear_wgrad, GroupedWgrad<bf16>)
ASSAY_GPU_ABSENT(grouped_forward_wgmma, GroupedForward<bf16>)
ASSAY_GPU_ABSENT(grouped_dgrad_wgmma, GroupedDgrad<bf16>)
ASSAY_GPU_ABSENT(grouped_wgrad_wgmma, GroupedWgrad<bf16>)
}  // namespace gpu

}  // namespace assay
