#include "ops/grouped_scaled.h"

#include <array>

#include "base/check.h"
#include "base/shapes.h"
#include "cuda/context.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/grouped/gpu_scaled.h"

namespace assay {

namespace {

bool eight_bits(ElementFormat element) {
  return element == ElementFormat::kE4M3 || element == ElementFormat::kE5M2;
}

// parts: 2 if the weight's lines are those of gate and up, else 1.
void check_operands(Exec on, const char* op, const CodedMatrix& x, const CodedStack& w, int64_t n,
                    int parts, View<const int32_t, 1> offsets) {
  CHECK(w.experts > 0 && offsets.dim[0] == w.experts + 1 && x.k() == w.k() && w.lines() == n,
        "%s: %s, n %ld", op,
        shapes("x", std::array{x.lines(), x.k()}, "weight", std::array{w.experts, w.lines(), w.k()},
               "offsets", offsets)
            .c_str(),
        long(n));
  CHECK(on.gpu != nullptr, "%s: only on a GPU", op);
  const std::string problem =
      grouped_scaled_problem(x.format, w.all.format, n / parts, x.k(), on.gpu->kind.capability);
  CHECK(problem.empty(), "%s: %s", op, problem.c_str());
  for (const CodedMatrix* m : {&x, &w.all}) {
    CHECK(m->format.scale == ScaleKind::kTensor
              ? m->tensor_scale.dim[0] == 2
              : m->scales.dim[0] == scale_count(m->format, m->lines(), m->k()),
          "%s: %s", op,
          shapes("operand", std::array{m->lines(), m->k()}, "scales", m->scales).c_str());
  }
}

}  // namespace

void grouped_scaled_linear(Exec on, const GroupedScaledLinear& a) {
  constexpr const char* kName = "grouped_scaled_linear";
  CHECK(a.y.dim[0] == a.x.lines(), "%s: %s", kName,
        shapes("y", a.y, "x", std::array{a.x.lines(), a.x.k()}).c_str());
  check_operands(on, kName, a.x, a.weight, a.y.dim[1], 1, a.offsets);
  const ProfileScope timed(on, kName, grouped_scaled_linear_cost(a));
  gpu::grouped_scaled_linear(on, a);
}

void grouped_scaled_swiglu_forward(Exec on, const GroupedScaledSwigluForward& a) {
  constexpr const char* kName = "grouped_scaled_swiglu_forward";
  CHECK(a.gate_up.dim[0] == a.h.dim[0] && a.gate_up.dim[1] == 2 * a.h.dim[1] &&
            a.row.dim[0] == a.h.dim[0],
        "%s: %s", kName, shapes("h", a.h, "gate_up", a.gate_up, "row", a.row).c_str());
  check_operands(on, kName, a.x, a.weight, a.gate_up.dim[1], 2, a.offsets);
  const ProfileScope timed(on, kName, grouped_scaled_swiglu_forward_cost(a));
  gpu::grouped_scaled_swiglu_forward(on, a);
}

void grouped_scaled_swiglu_dgrad(Exec on, const GroupedScaledSwigluDgrad& a) {
  constexpr const char* kName = "grouped_scaled_swiglu_dgrad";
  CHECK(
      a.dgate_up.dim[0] == a.dy.lines() && a.gate_up.dim[0] == a.dy.lines() &&
          a.dgate_up.dim[1] == a.gate_up.dim[1] && a.gate_up.dim[1] % 2 == 0,
      "%s: %s", kName,
      shapes("dgate_up", a.dgate_up, "gate_up", a.gate_up, "dy", std::array{a.dy.lines(), a.dy.k()})
          .c_str());
  check_operands(on, kName, a.dy, a.weight, a.gate_up.dim[1] / 2, 1, a.offsets);
  const ProfileScope timed(on, kName, grouped_scaled_swiglu_dgrad_cost(a));
  gpu::grouped_scaled_swiglu_dgrad(on, a);
}

std::string grouped_scaled_problem(const QuantFormat& x, const QuantFormat& weight, int64_t lines,
                                   int64_t k, int capability) {
  const bool by_tensor = x.scale == ScaleKind::kTensor && weight.scale == ScaleKind::kTensor;
  const bool by_block = x.scale == ScaleKind::k1x128 && weight.scale == ScaleKind::k128x128;
  if (!eight_bits(x.element) || weight.element != ElementFormat::kE4M3 ||
      (!by_tensor && !by_block) || (by_block && x.element != ElementFormat::kE4M3)) {
    return "grouped products have kernels for E4M3 or E5M2 by E4M3 with tensor scales, and for "
           "E4M3 1x128 by E4M3 128x128";
  }
  const int64_t whole = by_block ? 128 : 16;
  if (lines % whole != 0 || k % whole != 0) {
    return strprintf("experts of %ld x %ld: both must be multiples of %ld", long(lines), long(k),
                     long(whole));
  }
  if (capability < 89) return "grouped products in 8 bits need compute capability 8.9 or newer";
  return "";
}

namespace gpu {
ASSAY_GPU_ABSENT(grouped_scaled_linear, GroupedScaledLinear)
ASSAY_GPU_ABSENT(grouped_scaled_swiglu_forward, GroupedScaledSwigluForward)
ASSAY_GPU_ABSENT(grouped_scaled_swiglu_dgrad, GroupedScaledSwigluDgrad)
ASSAY_GPU_ABSENT(grouped_scaled_linear_wgmma, GroupedScaledLinear)
ASSAY_GPU_ABSENT(grouped_scaled_swiglu_forward_wgmma, GroupedScaledSwigluForward)
ASSAY_GPU_ABSENT(grouped_scaled_swiglu_dgrad_wgmma, GroupedScaledSwigluDgrad)
}  // namespace gpu

}  // namespace assay
