#include "ops/dequantise.h"

#include "base/check.h"
#include "base/shapes.h"
#include "base/small_float.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/scale.h"

namespace assay {

namespace {

constexpr int64_t kSegment = 16;  // elements with one scale, whatever the kind

// The factor of the block's codes; 1 without block scales.
template <typename T>
float decode_scale(const Dequantise<T>& a, int64_t line, int64_t k) {
  if (a.format.scale == ScaleKind::kTensor) return 1.0f;
  const int64_t i =
      scale_index(a.format, a.y.dim[0], a.y.dim[1], line, k / block_shape(a.format.scale).columns);
  if (has_float_scales(a.format.scale)) return a.scales[i];
  const uint32_t code = a.scale_codes[i];
  return a.format.scale == ScaleKind::k1x32 ? float(e8m0::from_bits(code)) : e4m3::decode(code);
}

template <typename T, typename Element>
void dequantise_as(Exec on, const Dequantise<T>& a) {
  float value[256];
  for (uint32_t code = 0; code < 256; ++code) value[code] = Element::decode(code);
  parallel_for(on, a.y.dim[0], [&](int64_t line) {
    const uint8_t* codes = a.codes.row(line);
    T* y = a.y.row(line);
    for (int64_t k = 0; k < a.y.dim[1]; k += kSegment) {
      const float scale = decode_scale(a, line, k);
      for (int64_t i = k; i < k + kSegment; ++i) {
        uint32_t code;
        if constexpr (std::is_same_v<Element, e2m1>) {
          code = codes[i / 2] >> (i % 2 * 4) & 15u;
        } else {
          code = codes[i];
        }
        round_to(y[i], value[code] * scale);
      }
    }
  });
}

}  // namespace

namespace cpu {

template <typename T>
void dequantise(Exec on, const Dequantise<T>& a) {
  switch (a.format.element) {
    case ElementFormat::kE4M3:
      return dequantise_as<T, e4m3>(on, a);
    case ElementFormat::kE5M2:
      return dequantise_as<T, e5m2>(on, a);
    case ElementFormat::kE2M1:
      return dequantise_as<T, e2m1>(on, a);
  }
}

}  // namespace cpu

template <typename T>
void dequantise(Exec on, const Dequantise<T>& a) {
  const ProfileScope timed(on, "dequantise", dequantise_cost(a));
  const QuantFormat& f = a.format;
  const int64_t lines = a.y.dim[0], k = a.y.dim[1], scales = scale_count(f, lines, k);
  require_whole_blocks("dequantise", f.scale, k);
  CHECK(
      a.codes.dim[0] == lines && a.codes.dim[1] == code_bytes(f.element, k) &&
          a.scales.size() == (has_float_scales(f.scale) ? scales : 0) &&
          a.scale_codes.size() == (has_byte_scales(f.scale) ? scales : 0),
      "dequantise: %s, needs %ld scales",
      shapes("y", a.y, "codes", a.codes, "scales", a.scales, "scale_codes", a.scale_codes).c_str(),
      long(scales));
  if (on.gpu) return gpu::dequantise(on, a);
  cpu::dequantise(on, a);
}

template void dequantise(Exec, const Dequantise<float>&);
template void dequantise(Exec, const Dequantise<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(dequantise, Dequantise<float>)
ASSAY_GPU_ABSENT(dequantise, Dequantise<bf16>)
}  // namespace gpu

}  // namespace assay
