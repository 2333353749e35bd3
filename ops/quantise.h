// Quantises a matrix x (R, C) once along its rows and once along its columns, from one read.
//
//   row       copy of x                lines R, K = C, a multiple of the block
//   column    copy of x transposed     lines C, K = R padded with zeros to whole blocks
//
// With ColumnRotation::kHadamard16 the column copy is rotated along its K by the 16-point random
// Hadamard transform (ops/quantise/hadamard16.h); groups of 16 that are all padding stay 0.
//
// Scales: ops/quantise/scale.h; elements and their rounding: base/small_float.h; layouts:
// ops/quantise_format.h. The stochastic draw of element (line, k) is half word i mod 8 of block
// i / 8 of the copy's key, i = line K + k. Kinds with a tensor scale read the tensor's amax
// (ops/amax.h), for a rotated copy that of the rotated tensor. A copy without codes is not made.
// Reference: tests/ref/quantise.h, and vectors of other code (tests/ops/quantise_vectors.py).
#pragma once

#include "base/bf16.h"
#include "base/cost.h"
#include "base/random.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/quantise_format.h"

namespace assay {

struct QuantisedCopy {
  View<uint8_t, 2> codes = {};        // out (lines, code_bytes(element, K)), aligned to 16 bytes
  View<float, 1> scales = {};         // out (scale_count) for k1x128, k128x128
  View<uint8_t, 1> scale_codes = {};  // out (scale_count) for k1x32, k1x16, k16x16
  View<float, 1> tensor_scale = {};   // out (2)   1 / S, S for kTensor, k1x16, k16x16
  View<const float, 1> amax = {};     // in  (1)   of the tensor, for the same kinds
  uint32_t site = 0;                  // reported in not_finite: 1 to 2^31 - 1
  RandomKey key = {};                 // for stochastic rounding
};

enum class ColumnRotation { kNone, kHadamard16 };

template <typename T>
struct Quantise {
  QuantisedCopy row = {};
  QuantisedCopy column = {};
  // acc (1)   mark of the first copy with a non-finite amax, of all calls: 2 site, + 1 for a NaN;
  // 0: none; optional
  View<uint32_t, 1> not_finite = {};
  View<const T, 2> x;                 // in (R, C)
  View<const uint32_t, 1> draw = {};  // in (1)   the step of both keys; optional
  QuantFormat format;
  ColumnRotation rotation = ColumnRotation::kNone;
  uint32_t signs = 0;  // of the rotation, 16 bits
};

// The key of a copy's draws: draw[0], if given, replaces its step. Reads device memory.
template <typename Op, typename Copy>
constexpr RandomKey draw_key(const Op& a, const Copy& copy) {
  RandomKey key = copy.key;
  if (!a.draw.empty()) key.step = a.draw[0];
  return key;
}

template <typename T>
void quantise(Exec on, const Quantise<T>& a);

// x read once, codes and scales written; about 16 operations per element and copy, and 8 more if it
// is rotated.
template <typename T>
Cost quantise_cost(const Quantise<T>& a) {
  const auto moved = [](const QuantisedCopy& c) {
    return view_bytes(c.codes, c.scales, c.scale_codes, c.tensor_scale, c.amax);
  };
  const double copies = double(!a.row.codes.empty()) + double(!a.column.codes.empty()) +
                        0.5 * double(a.rotation == ColumnRotation::kHadamard16);
  return {.bytes = view_bytes(a.x, a.draw) + 2 * view_bytes(a.not_finite) + moved(a.row) +
                   moved(a.column),
          .flops = 16 * copies * double(a.x.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (quantise.cu).
namespace gpu {
void quantise(Exec on, const Quantise<float>& a);
void quantise(Exec on, const Quantise<bf16>& a);
}  // namespace gpu

}  // namespace assay
