#include "ops/quantise.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "base/math.h"
#include "base/random_lanes.h"
#include "base/small_float.h"
#include "cuda/profile.h"
#include "ops/gpu/absent.h"
#include "ops/quantise/cpu_amax.h"
#include "ops/quantise/cpu_hadamard.h"
#include "ops/quantise/scale.h"

namespace assay {

namespace {

constexpr int64_t kTile = 128;  // lines and columns: a multiple of every block
static_assert(kTile == kHalvesDrawn);

using Tile = float[kTile][kTile];

// The tile of a copy that is made from a tile of x.
struct Part {
  const QuantisedCopy& to;
  const QuantFormat& format;
  int64_t lines, k;             // of the copy
  int64_t first_line, first_k;  // of the tile in it
  int64_t tile_lines, tile_k;   // of the tile
  float s;                      // S of the tensor
  const Tile& x;
  const View<uint32_t, 1>& not_finite;
};

template <typename Element, Rounding kRounding>
void encode(uint32_t* code, const float* x, int64_t n, const BlockScale& scale,
            const uint16_t* half) {
  const auto rounded = [](float y, uint32_t draw) {
    if constexpr (kRounding == Rounding::kStochastic) {
      return Element::drawn(y, draw);
    } else {
      static_cast<void>(draw);
      return Element::nearest(y);
    }
  };
  const float multiply = scale.multiply, divide = scale.divide;
  if (divide == 0) {
    std::fill(code, code + n, 0u);
  } else if (divide == 1) {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) code[i] = rounded(x[i] * multiply, half[i]);
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) code[i] = rounded(x[i] * multiply / divide, half[i]);
  }
}

template <typename Element>
void pack(uint8_t* to, const uint32_t* code, int64_t n) {
  if constexpr (std::is_same_v<Element, e2m1>) {
#pragma omp simd
    for (int64_t i = 0; i < n / 2; ++i) {
      to[i] = static_cast<uint8_t>(code[2 * i] | code[2 * i + 1] << 4);
    }
  } else {
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) to[i] = static_cast<uint8_t>(code[i]);
  }
}

void store_scale(const Part& p, int64_t line, int64_t block, const BlockScale& scale) {
  if (p.format.scale == ScaleKind::kTensor) return;
  if (line % lines_of_stored_scale(p.format) != 0) return;
  const int64_t i = scale_index(p.format, p.lines, p.k, line, block);
  if (has_float_scales(p.format.scale)) {
    p.to.scales[i] = scale.decode;
  } else {
    p.to.scale_codes[i] = static_cast<uint8_t>(scale.code);
  }
}

template <typename Element, Rounding kRounding>
void quantise_part(const Part& p) {
  const BlockShape block = block_shape(p.format.scale);
  uint16_t half[kHalvesDrawn] = {};
  uint32_t code[kTile], largest = 0;
  BlockScale scale[kTile / 16];
  for (int64_t l = 0; l < p.tile_lines; ++l) {
    const int64_t line = p.first_line + l;
    if constexpr (kRounding == Rounding::kStochastic) {
      draw_halves(p.to.key, static_cast<uint64_t>((line * p.k + p.first_k) / 8), half);
    }
    for (int64_t at = 0; at < p.tile_k; at += block.columns) {
      BlockScale& s = scale[at / block.columns];
      if (l % block.lines == 0) {
        uint32_t most = 0;
        for (int64_t i = l; i < std::min(l + block.lines, p.tile_lines); ++i) {
          most = std::max(most, largest_bits(&p.x[i][at], block.columns));
        }
        s = block_scale(p.format, p.s, most);
        largest = std::max(largest, most);
      }
      store_scale(p, line, (p.first_k + at) / block.columns, s);
      encode<Element, kRounding>(code + at, &p.x[l][at], block.columns, s, half + at);
    }
    uint8_t* const to = p.to.codes.row(line) + code_bytes(p.format.element, p.first_k);
    pack<Element>(to, code, p.tile_k);
  }
  mark_not_finite(p.not_finite, p.to.site, largest);
}

template <typename T>
QuantisedCopy with_drawn_key(const Quantise<T>& a, QuantisedCopy copy) {
  copy.key = draw_key(a, copy);
  return copy;
}

template <typename T, typename Element, Rounding kRounding>
void quantise_tile(const Quantise<T>& a, int64_t r0, int64_t c0) {
  const int64_t rows = a.x.dim[0], columns = a.x.dim[1];
  const int64_t tile_rows = std::min(kTile, rows - r0),
                tile_columns = std::min(kTile, columns - c0);
  alignas(64) Tile x, transposed;
  for (int64_t r = 0; r < tile_rows; ++r) {
    const T* from = a.x.row(r0 + r) + c0;
    for (int64_t c = 0; c < tile_columns; ++c) x[r][c] = float(from[c]);
    std::fill(x[r] + tile_columns, x[r] + kTile, 0.0f);
  }
  std::memset(x[tile_rows], 0, sizeof(float[kTile]) * size_t(kTile - tile_rows));
  const auto s_of = [&](const QuantisedCopy& copy) {
    return tensor_scale(a.format, has_tensor_scale(a.format.scale) ? copy.amax[0] : 0.0f);
  };
  if (!a.row.codes.empty()) {
    const QuantisedCopy to = with_drawn_key(a, a.row);
    quantise_part<Element, kRounding>({to, a.format, rows, columns, r0, c0, tile_rows, tile_columns,
                                       s_of(a.row), x, a.not_finite});
  }
  if (a.column.codes.empty()) return;
  const int64_t k = padded_length(a.format.scale, rows);
  if (a.rotation == ColumnRotation::kHadamard16) {
    for (int64_t g = 0; g < tile_rows; g += kHadamard) hadamard_rows(&x[g], a.signs);
  }
  for (int64_t c = 0; c < tile_columns; ++c) {
    for (int64_t r = 0; r < kTile; ++r) transposed[c][r] = x[r][c];
  }
  const QuantisedCopy to = with_drawn_key(a, a.column);
  quantise_part<Element, kRounding>({to, a.format, columns, k, c0, r0, tile_columns,
                                     std::min(kTile, k - r0), s_of(a.column), transposed,
                                     a.not_finite});
}

void store_tensor_scale(const QuantFormat& f, const QuantisedCopy& copy) {
  if (copy.codes.empty() || !has_tensor_scale(f.scale)) return;
  const float s = tensor_scale(f, copy.amax[0]);
  copy.tensor_scale[0] = s == s ? 1.0f / s : kScaleNaN;
  copy.tensor_scale[1] = s;
}

// Zeroes the scales, for the padding between them; the scales are written later.
void clear_scales(const QuantFormat& f, const QuantisedCopy& copy) {
  if (f.layout == ScaleLayout::kPlain) return;
  std::fill_n(copy.scales.data, copy.scales.size(), 0.0f);
  std::fill_n(copy.scale_codes.data, copy.scale_codes.size(), uint8_t{0});
}

template <typename T, typename Element, Rounding kRounding>
void quantise_as(Exec on, const Quantise<T>& a) {
  const int64_t tile_rows = ceil_div(a.x.dim[0], kTile), tile_columns = ceil_div(a.x.dim[1], kTile);
  for (const QuantisedCopy& copy : {a.row, a.column}) {
    clear_scales(a.format, copy);
    store_tensor_scale(a.format, copy);
  }
  parallel_for(on, tile_rows * tile_columns, [&](int64_t i) {
    quantise_tile<T, Element, kRounding>(a, i / tile_columns * kTile, i % tile_columns * kTile);
  });
}

template <typename T, typename Element>
void quantise_as(Exec on, const Quantise<T>& a) {
  if (a.format.rounding == Rounding::kNearest) {
    return quantise_as<T, Element, Rounding::kNearest>(on, a);
  }
  quantise_as<T, Element, Rounding::kStochastic>(on, a);
}

void check_copy(const char* name, const QuantFormat& f, const QuantisedCopy& copy, int64_t lines,
                int64_t k) {
  if (copy.codes.empty()) return;
  require_whole_blocks(name, f.scale, k);
  const int64_t scales = scale_count(f, lines, k);
  CHECK(copy.codes.dim[0] == lines && copy.codes.dim[1] == code_bytes(f.element, k),
        "quantise: %s: codes (%ld, %ld) of (%ld, %ld) elements", name, long(copy.codes.dim[0]),
        long(copy.codes.dim[1]), long(lines), long(k));
  CHECK(copy.scales.size() == (has_float_scales(f.scale) ? scales : 0) &&
            copy.scale_codes.size() == (has_byte_scales(f.scale) ? scales : 0),
        "quantise: %s: %ld scales and %ld scale codes, needs %ld", name, long(copy.scales.size()),
        long(copy.scale_codes.size()), long(scales));
  const int64_t tensor = has_tensor_scale(f.scale);
  CHECK(copy.tensor_scale.size() == 2 * tensor && copy.amax.size() == tensor,
        "quantise: %s: tensor_scale (%ld), amax (%ld)", name, long(copy.tensor_scale.size()),
        long(copy.amax.size()));
  CHECK(reinterpret_cast<uintptr_t>(copy.codes.data) % 16 == 0,
        "quantise: %s: codes at %p, not aligned to 16 bytes", name,
        static_cast<const void*>(copy.codes.data));
}

}  // namespace

namespace cpu {

template <typename T>
void quantise(Exec on, const Quantise<T>& a) {
  switch (a.format.element) {
    case ElementFormat::kE4M3:
      return quantise_as<T, e4m3>(on, a);
    case ElementFormat::kE5M2:
      return quantise_as<T, e5m2>(on, a);
    case ElementFormat::kE2M1:
      return quantise_as<T, e2m1>(on, a);
  }
}

}  // namespace cpu

template <typename T>
void quantise(Exec on, const Quantise<T>& a) {
  const ProfileScope timed(on, "quantise", quantise_cost(a));
  const int64_t rows = a.x.dim[0], columns = a.x.dim[1];
  check_copy("row copy", a.format, a.row, rows, columns);
  check_copy("column copy", a.format, a.column, columns, padded_length(a.format.scale, rows));
  if (on.gpu) return gpu::quantise(on, a);
  cpu::quantise(on, a);
}

template void quantise(Exec, const Quantise<float>&);
template void quantise(Exec, const Quantise<bf16>&);

namespace gpu {
ASSAY_GPU_ABSENT(quantise, Quantise<float>)
ASSAY_GPU_ABSENT(quantise, Quantise<bf16>)
}  // namespace gpu

}  // namespace assay
