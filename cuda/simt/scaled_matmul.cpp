// The products of cuda/scaled_matmul.h in the SIMT emulator: decodes both operands from cuBLASLt's
// layouts and multiplies in float, each sum in the order of k. Scales of whole tensors multiply the
// sum.
#include "cuda/scaled_matmul.h"

#include <vector>

#include "base/math.h"
#include "base/small_float.h"
#include "cuda/simt/run_grid.h"
#include "cuda/simt/stream.h"

namespace assay::gpu {

namespace {

float code_value(const CodeOperand& o, int64_t i) {
  const auto* const bytes = static_cast<const uint8_t*>(o.codes);
  switch (o.kind.format) {
    case CodeFormat::kE4M3:
      return e4m3::decode(bytes[i]);
    case CodeFormat::kE5M2:
      return e5m2::decode(bytes[i]);
    case CodeFormat::kE2M1:
      return e2m1::decode(bytes[i / 2] >> (i % 2 * 4) & 0xF);
  }
  return 0;
}

// The scale of an element, from the layouts in cuBLASLt's documentation.
float scale_value(const CodeOperand& o, int64_t lines, int64_t k, int64_t line, int64_t at) {
  const auto* const floats = static_cast<const float*>(o.scales);
  const auto* const bytes = static_cast<const uint8_t*>(o.scales);
  // Tiles of 128 lines by 4 blocks, along k first; each 16 bytes hold lines r, r + 32, r + 64 and
  // r + 96 of a tile.
  const auto tiled = [&](int64_t block) {
    const int64_t tile = line / 128 * (round_up(ceil_div(k, block), 4) / 4) + at / block / 4;
    return bytes[tile * 512 + line % 32 * 16 + line % 128 / 32 * 4 + at / block % 4];
  };
  switch (o.kind.scales) {
    case CodeScales::kTensor:
      return 1;
    case CodeScales::k1x128:
      return floats[at / 128 * round_up(lines, 4) + line];
    case CodeScales::k128x128:
      return floats[line / 128 * round_up(ceil_div(k, 128), 4) + at / 128];
    case CodeScales::k1x32:
      return float(e8m0::from_bits(tiled(32)));
    case CodeScales::k1x16:
      return e4m3::decode(tiled(16));
  }
  return 0;
}

float tensor_factor(const CodeOperand& o) {
  return o.kind.scales == CodeScales::kTensor ? static_cast<const float*>(o.scales)[0] : 1;
}

// (lines, k), or its transpose.
enum class Order { kLines, kAlongK };
std::vector<float> decoded(const CodeOperand& o, int64_t lines, int64_t k, Order order) {
  std::vector<float> values(static_cast<size_t>(lines * k));
  for (int64_t line = 0; line < lines; ++line) {
    for (int64_t at = 0; at < k; ++at) {
      const int64_t to = order == Order::kLines ? line * k + at : at * lines + line;
      values[static_cast<size_t>(to)] =
          code_value(o, line * k + at) * scale_value(o, lines, k, line, at);
    }
  }
  return values;
}

float number(const void* p, Element type, int64_t i) {
  return type == Element::kFloat ? static_cast<const float*>(p)[i]
                                 : float(static_cast<const bf16*>(p)[i]);
}

void multiply(const ScaledMatmul& p) {
  const std::vector<float> a = decoded(p.a, p.m, p.k, Order::kLines);
  const std::vector<float> b = decoded(p.b, p.n, p.k, Order::kAlongK);
  std::vector<float> sum(static_cast<size_t>(p.n));
  const float factor = (p.factors ? p.factors[0] : 1) * (tensor_factor(p.a) * tensor_factor(p.b));
  const float factor_of_c = p.factors ? p.factors[1] : 1;
  for (int64_t i = 0; i < p.m; ++i) {
    for (float& s : sum) s = 0;
    for (int64_t k = 0; k < p.k; ++k) {
      const float x = a[static_cast<size_t>(i * p.k + k)];
      const float* row = b.data() + k * p.n;
      for (int64_t j = 0; j < p.n; ++j) sum[static_cast<size_t>(j)] += x * row[j];
    }
    for (int64_t j = 0; j < p.n; ++j) {
      const int64_t at = i * p.n + j;
      const float value = factor * sum[static_cast<size_t>(j)] +
                          (p.c ? factor_of_c * number(p.c, p.result, at) : 0.0f);
      if (p.result == Element::kFloat) {
        static_cast<float*>(p.d)[at] = value;
      } else {
        round_to(static_cast<bf16*>(p.d)[at], value);
      }
    }
  }
}

}  // namespace

// Runs as a grid of one thread, because only kernels may access device memory.
void scaled_matmul(Exec on, const ScaledMatmul& p) {
  check_scaled_matmul(p);
  simt::enqueue(simt::stream_of(on), [p] {
    simt::run_grid("scaled_matmul", {1, 1, 1}, {1, 1, 1}, 0, [&] { multiply(p); });
  });
}

}  // namespace assay::gpu
