#include "ops/scaled_linear.h"

#include <array>

#include "base/check.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "cuda/scaled_matmul.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/gpu_operand.h"

namespace assay {

namespace {

void check_operand(const char* name, const CodedMatrix& m) {
  const int64_t scales = scale_count(m.format, m.lines(), m.k());
  CHECK(m.format.layout == ScaleLayout::kHardware || m.format.scale == ScaleKind::kTensor,
        "scaled_linear: %s has the plain layout, needs the hardware layout", name);
  CHECK(m.codes.dim[1] % 16 == 0 && m.k() % block_shape(m.format.scale).columns == 0,
        "scaled_linear: %s (%ld, %ld), K must be whole 16 bytes and whole blocks", name,
        long(m.lines()), long(m.k()));
  CHECK((!has_float_scales(m.format.scale) || m.scales.dim[0] == scales) &&
            (!has_byte_scales(m.format.scale) || m.scale_codes.dim[0] == scales) &&
            (!has_tensor_scale(m.format.scale) || m.tensor_scale.dim[0] == 2),
        "scaled_linear: %s, needs %ld scales",
        shapes(name, std::array{m.lines(), m.k()}, "scales", m.scales, "scale_codes", m.scale_codes)
            .c_str(),
        long(scales));
}

}  // namespace

template <typename Y>
void scaled_linear(Exec on, const ScaledLinear<Y>& a) {
  check_operand("left", a.left);
  check_operand("right", a.right);
  CHECK(a.left.k() == a.right.k() && a.y.dim[0] == a.left.lines() &&
            a.y.dim[1] == a.right.lines() &&
            (a.add.empty() || (a.add.dim[0] == a.y.dim[0] && a.add.dim[1] == a.y.dim[1])),
        "scaled_linear: %s",
        shapes("y", a.y, "left", std::array{a.left.lines(), a.left.k()}, "right",
               std::array{a.right.lines(), a.right.k()}, "add", a.add)
            .c_str());
  CHECK(on.gpu != nullptr, "scaled_linear: only on a GPU");
  const ProfileScope timed(on, "scaled_linear", scaled_linear_cost(a));
  gpu::scaled_linear(on, a);
}

std::string scaled_linear_problem(const QuantFormat& left, const QuantFormat& right,
                                  int capability) {
  return gpu::scaled_matmul_problem(code_kind(left), code_kind(right), capability);
}

template void scaled_linear<float>(Exec, const ScaledLinear<float>&);
template void scaled_linear<bf16>(Exec, const ScaledLinear<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(scaled_linear, ScaledLinear<float>)
ASSAY_GPU_ABSENT(scaled_linear, ScaledLinear<bf16>)
}  // namespace gpu

}  // namespace assay
