#include "base/math.h"
#include "base/small_float.h"
#include "cuda/gpu.h"
#include "cuda/launch.h"
#include "ops/dequantise.h"
#include "ops/gpu/elements.h"
#include "ops/quantise/scale.h"

namespace assay::gpu {

namespace {

constexpr int kThreads = 256;
constexpr int kSegment = 16;  // elements per thread, which share a scale in every scale kind

template <typename T>
GPU_DEVICE float decode_scale(const Dequantise<T>& a, int64_t line, int64_t k) {
  if (a.format.scale == ScaleKind::kTensor) return 1.0f;
  const int64_t i =
      scale_index(a.format, a.y.dim[0], a.y.dim[1], line, k / block_shape(a.format.scale).columns);
  if (has_float_scales(a.format.scale)) return a.scales[i];
  const uint32_t code = a.scale_codes[i];
  return a.format.scale == ScaleKind::k1x32 ? float(e8m0::from_bits(code)) : e4m3::decode(code);
}

// Each thread owns 16 adjacent elements. Bound by memory: codes and y once.
template <typename T, typename Element>
__global__ __launch_bounds__(kThreads) void dequantise_kernel(
    const __grid_constant__ Dequantise<T> a) {
  constexpr int kBits = std::is_same_v<Element, e2m1> ? 4 : 8;
  const int64_t segments = a.y.dim[1] / kSegment;
  const int64_t i = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= a.y.dim[0] * segments) return;
  const int64_t line = i / segments, k = i % segments * kSegment;
  const float scale = decode_scale(a, line, k);
  const auto words = load_vec<kSegment * kBits / 32>(
      reinterpret_cast<const uint32_t*>(a.codes.row(line) + k * kBits / 8));
  float y[kSegment];
  for (int e = 0; e < kSegment; ++e) {
    const uint32_t code = words[e * kBits / 32] >> (e * kBits % 32) & ((1u << kBits) - 1);
    y[e] = Element::decode(code) * scale;
  }
  for (int h = 0; h < kSegment; h += kVector) {
    float half[kVector];
    for (int e = 0; e < kVector; ++e) half[e] = y[h + e];
    store_floats(a.y.row(line) + k + h, half);
  }
}

template <typename T, typename Element>
void launch_dequantise(Exec on, const Dequantise<T>& a) {
  const int64_t segments = a.y.size() / kSegment;
  launch(
      on,
      {.name = "dequantise", .grid = {unsigned(ceil_div(segments, kThreads))}, .block = {kThreads}},
      dequantise_kernel<T, Element>, a);
}

template <typename T>
void launch_dequantise(Exec on, const Dequantise<T>& a) {
  switch (a.format.element) {
    case ElementFormat::kE4M3:
      return launch_dequantise<T, e4m3>(on, a);
    case ElementFormat::kE5M2:
      return launch_dequantise<T, e5m2>(on, a);
    case ElementFormat::kE2M1:
      return launch_dequantise<T, e2m1>(on, a);
  }
}

}  // namespace

void dequantise(Exec on, const Dequantise<float>& a) {
  launch_dequantise(on, a);
}
void dequantise(Exec on, const Dequantise<bf16>& a) {
  launch_dequantise(on, a);
}

}  // namespace assay::gpu
