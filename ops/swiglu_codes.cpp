#include "ops/swiglu_codes.h"

#include "base/check.h"
#include "base/shapes.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"

namespace assay {

namespace {

// True if p can be accessed 16 bytes at a time.
bool aligned(const void* p) {
  return reinterpret_cast<uintptr_t>(p) % 16 == 0;
}

void check_copy(const char* op, const char* what, const QuantisedCopy& copy,
                const QuantFormat& format, int64_t lines, int64_t k) {
  CHECK(copy.codes.dim[0] == lines && copy.codes.dim[1] == k && aligned(copy.codes.data) &&
            copy.scales.dim[0] == scale_count(format, lines, k),
        "%s: %s of (%ld, %ld): %s, codes at %p", op, what, long(lines), long(k),
        shapes("codes", copy.codes, "scales", copy.scales).c_str(),
        static_cast<const void*>(copy.codes.data));
}

void check_call(Exec on, const char* op, const QuantFormat& format, int64_t width) {
  CHECK(on.gpu != nullptr, "%s: only on a GPU", op);
  const std::string problem = swiglu_codes_problem(format, width);
  CHECK(problem.empty(), "%s: %s", op, problem.c_str());
}

}  // namespace

void swiglu_codes_forward(Exec on, const SwigluCodesForward& a) {
  constexpr const char* kName = "swiglu_codes_forward";
  const int64_t rows = a.gate_up.dim[0], width = a.gate_up.dim[1] / 2;
  check_call(on, kName, a.format, width);
  CHECK(a.gate_up.dim[1] == 2 * width && aligned(a.gate_up.data), "%s: gate_up (%ld, %ld) at %p",
        kName, long(rows), long(a.gate_up.dim[1]), static_cast<const void*>(a.gate_up.data));
  check_copy(kName, "h", a.h, a.format, rows, width);
  const ProfileScope timed(on, kName, swiglu_codes_forward_cost(a));
  gpu::swiglu_codes_forward(on, a);
}

void swiglu_codes_backward(Exec on, const SwigluCodesBackward& a) {
  constexpr const char* kName = "swiglu_codes_backward";
  const int64_t rows = a.dh.dim[0], width = a.dh.dim[1];
  const int64_t padded = padded_length(a.format.scale, rows);
  check_call(on, kName, a.format, width);
  CHECK(a.gate_up.dim[0] == rows && a.gate_up.dim[1] == 2 * width && aligned(a.gate_up.data) &&
            aligned(a.dh.data),
        "%s: %s, at %p and %p", kName, shapes("dh", a.dh, "gate_up", a.gate_up).c_str(),
        static_cast<const void*>(a.dh.data), static_cast<const void*>(a.gate_up.data));
  check_copy(kName, "rows", a.row, a.format, rows, 2 * width);
  check_copy(kName, "columns", a.column, a.format, 2 * width, padded);
  check_copy(kName, "columns of h", a.h_column, a.format, width, padded);
  const ProfileScope timed(on, kName, swiglu_codes_backward_cost(a));
  gpu::swiglu_codes_backward(on, a);
}

std::string swiglu_codes_problem(const QuantFormat& format, int64_t width) {
  if (format.element != ElementFormat::kE4M3 || format.scale != ScaleKind::k1x128 ||
      format.rounding != Rounding::kNearest) {
    return "SwiGLU writes only codes of E4M3 1x128, rounded to nearest";
  }
  if (width % 128 != 0) return strprintf("FFN width %ld is not a multiple of 128", long(width));
  return "";
}

namespace gpu {
ASSAY_GPU_ABSENT(swiglu_codes_forward, SwigluCodesForward)
ASSAY_GPU_ABSENT(swiglu_codes_backward, SwigluCodesBackward)
}  // namespace gpu

}  // namespace assay
