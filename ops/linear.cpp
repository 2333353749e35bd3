#include "ops/linear.h"

#include <algorithm>

#include "base/bf16.h"
#include "base/check.h"
#include "base/shapes.h"
#include "cuda/matmul.h"
#include "cuda/profile.h"
#include "ops/cpu_gemm/gemm.h"
#include "ops/cpu_gemm/ragged.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

// Row numbers are int32 in Segments.
void check_rows(const char* op, int64_t rows) {
  CHECK(rows < int64_t{1} << 31, "%s: %ld rows", op, long(rows));
}

}  // namespace

namespace cpu {

template <typename T, typename Y>
void linear_forward(Exec on, const LinearForward<T, Y>& a) {
  const int32_t offsets[2] = {0, static_cast<int32_t>(a.x.dim[0])};
  multiply_segments<T, Y>(on, {.c = a.y.data,
                               .start = a.add.data,
                               .c_stride = a.y.dim[1],
                               .a = a.x.data,
                               .a_stride = a.x.dim[1],
                               .row = nullptr,
                               .b = a.weight.packed.data,
                               .b_bytes = 0,
                               .cols = a.y.dim[1],
                               .k = a.x.dim[1],
                               .segments = {offsets, 1},
                               .scale = a.scale});
}

template <typename T>
void linear_dgrad(Exec on, const LinearDgrad<T>& a) {
  const int64_t out = a.dy.dim[1], in = a.dx.dim[1];
  const int32_t offsets[2] = {0, static_cast<int32_t>(a.dy.dim[0])};
  multiply_segments<T, T>(on, {.c = a.dx.data,
                               .start = a.add.data,
                               .c_stride = in,
                               .a = a.dy.data,
                               .a_stride = out,
                               .row = nullptr,
                               .b = a.weight.packed.data + weight_pack_dgrad_offset<T>(out, in),
                               .b_bytes = 0,
                               .cols = in,
                               .k = out,
                               .segments = {offsets, 1},
                               .scale = a.scale});
}

template <typename T>
void linear_wgrad(Exec on, const LinearWgrad<T>& a) {
  const int32_t offsets[2] = {0, static_cast<int32_t>(a.dy.dim[0])};
  accumulate_segments<T>(on, {.c = a.dweight.data,
                              .sum = a.sum,
                              .a = a.dy.data,
                              .a_stride = a.dweight.dim[0],
                              .b = a.x.data,
                              .row = nullptr,
                              .rows = a.dweight.dim[0],
                              .cols = a.dweight.dim[1],
                              .segments = {offsets, 1},
                              .scale = a.scale});
}

}  // namespace cpu

template <typename T>
int64_t linear_workspace_bytes(Backend backend, int64_t rows, int64_t in) {
  const int64_t bytes = accumulate_workspace_bytes<T>(rows, 1, in);
  return backend == Backend::kGpu ? std::max(bytes, gpu::kMatmulWorkspaceBytes) : bytes;
}

template <typename T, typename Y>
void linear_forward(Exec on, const LinearForward<T, Y>& a) {
  const auto& w = a.weight.plain;
  CHECK(a.y.dim[0] == a.x.dim[0] && a.y.dim[1] == w.dim[0] && a.x.dim[1] == w.dim[1],
        "linear_forward: %s", shapes("y", a.y, "x", a.x, "weight", w).c_str());
  CHECK(a.add.empty() || (a.add.dim[0] == a.y.dim[0] && a.add.dim[1] == a.y.dim[1]),
        "linear_forward: %s", shapes("add", a.add, "y", a.y).c_str());
  check_rows("linear_forward", a.x.dim[0]);
  check_product_scale("linear_forward", a.scale);
  check_packed(on, "linear_forward", a.weight);
  const ProfileScope timed(on, "linear_forward", linear_forward_cost(a));
  if (on.gpu) return gpu::linear_forward(on, a);
  cpu::linear_forward(on, a);
}

template <typename T>
void linear_dgrad(Exec on, const LinearDgrad<T>& a) {
  const auto& w = a.weight.plain;
  CHECK(a.dx.dim[0] == a.dy.dim[0] && a.dy.dim[1] == w.dim[0] && a.dx.dim[1] == w.dim[1],
        "linear_dgrad: %s", shapes("dx", a.dx, "dy", a.dy, "weight", w).c_str());
  CHECK(a.add.empty() || (a.add.dim[0] == a.dx.dim[0] && a.add.dim[1] == a.dx.dim[1]),
        "linear_dgrad: %s", shapes("add", a.add, "dx", a.dx).c_str());
  check_rows("linear_dgrad", a.dy.dim[0]);
  check_product_scale("linear_dgrad", a.scale);
  check_packed(on, "linear_dgrad", a.weight);
  const ProfileScope timed(on, "linear_dgrad", linear_dgrad_cost(a));
  if (on.gpu) return gpu::linear_dgrad(on, a);
  cpu::linear_dgrad(on, a);
}

template <typename T>
void linear_wgrad(Exec on, const LinearWgrad<T>& a) {
  CHECK(a.dy.dim[0] == a.x.dim[0] && a.dy.dim[1] == a.dweight.dim[0] &&
            a.x.dim[1] == a.dweight.dim[1],
        "linear_wgrad: %s", shapes("dweight", a.dweight, "dy", a.dy, "x", a.x).c_str());
  check_rows("linear_wgrad", a.dy.dim[0]);
  check_product_scale("linear_wgrad", a.scale);
  const ProfileScope timed(on, "linear_wgrad", linear_wgrad_cost(a));
  if (on.gpu) return gpu::linear_wgrad(on, a);
  cpu::linear_wgrad(on, a);
}

template int64_t linear_workspace_bytes<float>(Backend, int64_t, int64_t);
template int64_t linear_workspace_bytes<bf16>(Backend, int64_t, int64_t);
template void linear_forward<float, float>(Exec, const LinearForward<float, float>&);
template void linear_forward<bf16, bf16>(Exec, const LinearForward<bf16, bf16>&);
template void linear_forward<bf16, float>(Exec, const LinearForward<bf16, float>&);
template void linear_dgrad<float>(Exec, const LinearDgrad<float>&);
template void linear_dgrad<bf16>(Exec, const LinearDgrad<bf16>&);
template void linear_wgrad<float>(Exec, const LinearWgrad<float>&);
template void linear_wgrad<bf16>(Exec, const LinearWgrad<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(linear_forward, LinearForward<float>)
ASSAY_GPU_ABSENT(linear_forward, LinearForward<bf16>)
ASSAY_GPU_ABSENT(linear_forward, LinearForward<bf16, float>)
ASSAY_GPU_ABSENT(linear_dgrad, LinearDgrad<float>)
ASSAY_GPU_ABSENT(linear_dgrad, LinearDgrad<bf16>)
ASSAY_GPU_ABSENT(linear_wgrad, LinearWgrad<float>)
ASSAY_GPU_ABSENT(linear_wgrad, LinearWgrad<bf16>)
}  // namespace gpu

}  // namespace assay
