// Quantises a matrix x (R, C) once along its rows and once along its columns, from one read.
//
//   row       copy of x:                 lines R, K = C, a multiple of the block
//   column    copy of x transposed:      lines C, K = R padded with zeros to whole blocks; rotated by the 16-point random Hadamard
//             transform (ops/quantise/hadamard16.h) along its K, if asked for; 16 that are all padding stay 0
//
// The scales: ops/quantise/scale.h; elements and their roundings: base/small_float.h; where things
// lie: ops/quantise_format.h. The stochastic draw of element (line, k) is half word i mod 8 of
// block i / 8 of the copy's key, i = line K + k. Kinds with a tensor scale read the tensor's amax
// (ops/amax.h), that of the rotated tensor for a rotated copy. An empty view of codes: no such
// copy. Reference: tests/ref/quantise.h, and vectors of other code (tests/ops/quantise_vectors.py).
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
  View<float, 1> scales = {};         // out (scale_count) of k1x128 and k128x128
  View<uint8_t, 1> scale_codes = {};  // out (scale_count) of k1x32, k1x16, k16x16
  View<float, 1> tensor_scale = {};   // out (2)   S, 1 / S: of kTensor, k1x16, k16x16
  View<const float, 1> amax = {};     // in  (1)   the same
  uint32_t site = 0;                  // below 2^31: in not_finite
  RandomKey key = {};                 // of stochastic rounding
};

enum class ColumnRotation { kNone, kHadamard16 };

template <typename T>
struct Quantise {
  QuantisedCopy row = {};
  QuantisedCopy column = {};
  // acc (1)   2 site + (1: a NaN) of the first copy whose amax is not finite, of all calls; or empty
  View<uint32_t, 1> not_finite = {};
  View<const T, 2> x;                 // in (R, C)
  View<const uint32_t, 1> draw = {};  // in (1)   the step of both keys; or empty
  QuantFormat format;
  ColumnRotation rotation = ColumnRotation::kNone;
  uint32_t signs = 0;  // of the rotation
};

// Of a copy that a makes; where the op runs.
template <typename Op, typename Copy>
constexpr RandomKey draw_key(const Op& a, const Copy& copy) {
  RandomKey key = copy.key;
  if (!a.draw.empty()) key.step = a.draw[0];
  return key;
}

template <typename T>
void quantise(Exec on, const Quantise<T>& a);

// x once, codes and scales written; about 16 operations an element and copy, and 8 more where it is
// rotated.
template <typename T>
Cost quantise_cost(const Quantise<T>& a) {
  const auto written = [](const QuantisedCopy& c) {
    return double(c.codes.bytes() + c.scales.bytes() + c.scale_codes.bytes());
  };
  const double copies = double(!a.row.codes.empty()) + double(!a.column.codes.empty()) +
                        0.5 * double(a.rotation == ColumnRotation::kHadamard16);
  return {.bytes = double(a.x.bytes()) + written(a.row) + written(a.column),
          .flops = 16 * copies * double(a.x.size())};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (quantise.cu).
namespace gpu {
void quantise(Exec on, const Quantise<float>& a);
void quantise(Exec on, const Quantise<bf16>& a);
}  // namespace gpu

}  // namespace assay
