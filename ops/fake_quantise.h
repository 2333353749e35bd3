// Quantises a matrix and writes what it decodes to, in bf16: what a product sees of a format that
// the hardware lacks.
//
//   z[a, c]   = x[gather[a], c]                                          (A, C); without gather x[a, c]
//   row       y = code x scale of the block, blocks along C
//   column    the same with blocks along the rows, of z or of z rotated; y lies as z does, it is not transposed
//
// Blocks, scales, roundings: those of ops/quantise.h, so y = dequantise(quantise(z)), bit for bit.
// The tensor's scale stays out, for the epilogue of the product: its amax is that of z (of z
// rotated), made here or known. e8m0 and ue4m3 scales: y is exact (ops/dequantise.h).
//
// Segments offsets[s] <= a < offsets[s + 1] are cut off from each other: a block that spans rows
// (column copies, 16 x 16, 128 x 128) starts anew at a segment's begin and is short at its end, as
// if padded with zeros. The rotation (ops/quantise/hadamard16.h) takes 16 rows from the segment's
// begin on; the last ones, fewer than 16, are NOT rotated. Both operands of a product along these
// rows do the same, so their product is right.
//
// The stochastic draw of z[a, c] is half word i mod 8 of block i / 8 of the copy's key, whatever
// the segments:
//   row copy   i = a C + c        column copy   i = c K + a, K = A padded to whole blocks
//
// A block that is not finite decodes to NaN (of a tensor without block scales: to 0, and S is NaN),
// and its copy's site is left in not_finite. Reference: tests/ref/fake_quantise.h.
#pragma once

#include <bit>

#include "base/bf16.h"
#include "base/cost.h"
#include "base/random.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "ops/quantise.h"
#include "ops/quantise_format.h"

namespace assay {

// Whether y and scales hold an earlier copy of the same matrix, whose codes the new ones are
// compared with.
enum class Flips { kNotCounted, kCounted };

enum class FakeWay { kRow, kColumn };

struct FakeCopy {
  View<bf16, 2> y = {};              // out (A, C)   empty: no such copy
  View<float, 1> tensor_scale = {};  // out (2)      S, 1 / S: of kTensor, k1x16, k16x16
  View<bf16, 1> scales =
      {};  // out (fake_quantise_scales)   of the blocks, as codes are decoded by them; or empty
  Flips flips = Flips::kNotCounted;  // with measures, and with scales where blocks have them
  uint32_t site = 0;                 // below 2^31: in not_finite
  QuantFormat format = {ElementFormat::kE4M3, ScaleKind::kTensor};  // its layout has no meaning
  RandomKey key = {};  // of stochastic rounding; its step is draw[0] where there is one
};

// What is counted of a copy, in this order.
enum FakeMeasure {
  kFakeValues,
  kFakeFlushed,     // x != 0 that became 0
  kFakeSaturated,   // x scaled is beyond the largest element
  kFakeErrors,      // sum of (y / S - x)^2, x rotated where the copy is
  kFakeSquares,     // sum of x^2
  kFakeFlips,       // codes, sign included, that are not those of the earlier copy
  kFakeBlocks,      // of a tensor without block scales: 1
  kFakeZeroBlocks,  // amax 0
  kFakeLowScales,   // amax > 0, the scale at its format's smallest positive number or 0
  kFakeHighScales,  // at its largest
  kFakeSums,        // the measures up to here are added up; of those behind it the largest counts
  // Over the blocks with a finite amax > 0, by the bits b of the scale as a float (of a tensor's: 1
  // / S); 0: there is none.
  kFakeLargestScale = kFakeSums,  // b + 1
  kFakeSmallestScale,             // 2^32 - 1 - b
  kFakeMeasures
};
inline float largest_scale(const View<const double, 1>& measures) {
  return std::bit_cast<float>(static_cast<uint32_t>(measures[kFakeLargestScale]) - 1);
}
inline float smallest_scale(const View<const double, 1>& measures) {
  return std::bit_cast<float>(~static_cast<uint32_t>(measures[kFakeSmallestScale]));
}

template <typename X>
struct FakeQuantise {
  FakeCopy row = {};
  FakeCopy column = {};
  View<double, 1> measures =
      {};  // acc (2 kFakeMeasures)   of the row copy, of the column copy; or empty
  // acc (1)   2 site + (1: a NaN) of the first copy whose amax is not finite, of all calls; or empty
  View<uint32_t, 1> not_finite = {};
  View<float, 1> amax = {};      // tmp (2)   where finds_amax()
  View<double, 2> partial = {};  // tmp (fake_quantise_pieces, 2 kFakeMeasures)   with measures
  View<const X, 2> x;            // in  (R, C)
  View<const float, 1> known_amax =
      {};  // in  (1)     of z, which copies that are not rotated need not find; or empty
  View<const int32_t, 1> gather = {};   // in  (A)     row of x of each row of z; A = R without it
  View<const int32_t, 1> offsets = {};  // in  (S+1)   from 0 to A; empty: one segment
  View<const uint32_t, 1> draw = {};    // in  (1)     the step of both keys; or empty
  ColumnRotation rotation = ColumnRotation::kNone;
  uint32_t signs = 0;  // of the rotation

  constexpr int64_t rows() const { return gather.empty() ? x.dim[0] : gather.dim[0]; }
  constexpr int rotated(FakeWay way) const {
    return way == FakeWay::kColumn && rotation == ColumnRotation::kHadamard16;
  }
  // Is the copy's largest magnitude found by a pass over z?
  constexpr int finds_amax(FakeWay way) const {
    const FakeCopy& copy = way == FakeWay::kRow ? row : column;
    const int needed = !copy.y.empty() && has_tensor_scale(copy.format.scale);
    return needed && (known_amax.empty() || rotated(way));
  }
  constexpr int finds_amax() const {
    return finds_amax(FakeWay::kRow) || finds_amax(FakeWay::kColumn);
  }
  // The largest magnitude of what a copy with a tensor scale is made of.
  constexpr float amax_of(FakeWay way) const {
    if (rotated(way)) return amax[1];
    return known_amax.empty() ? amax[0] : known_amax[0];
  }
  constexpr int64_t segments() const { return offsets.empty() ? 1 : offsets.dim[0] - 1; }
};

// y is the same to the bit on every backend, and so are the measures, but for the last bits of the
// errors and squares.
template <typename X>
void fake_quantise(Exec on, const FakeQuantise<X>& a);

int64_t fake_quantise_pieces(int64_t rows, int64_t segments, int64_t columns);
// Places of the scales of one copy, the only one of its call; none of a tensor without block
// scales.
int64_t fake_quantise_scales(ScaleKind kind, FakeWay way, int64_t rows, int64_t segments,
                             int64_t columns);

// x once, twice where a tensor's amax is found; y written; about 20 operations an element and copy.
template <typename X>
Cost fake_quantise_cost(const FakeQuantise<X>& a) {
  const double elements = double(a.rows()) * double(a.x.dim[1]);
  const double copies = double(!a.row.y.empty()) + double(!a.column.y.empty()) +
                        0.5 * double(a.rotation == ColumnRotation::kHadamard16);
  const double reads = a.finds_amax() ? 2 : 1;
  return {.bytes = reads * elements * sizeof(X) + double(a.row.y.bytes() + a.column.y.bytes()),
          .flops = 20 * copies * elements};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (fake_quantise.cu).
namespace gpu {
void fake_quantise(Exec on, const FakeQuantise<float>& a);
void fake_quantise(Exec on, const FakeQuantise<bf16>& a);
}  // namespace gpu

}  // namespace assay
