// Quantises a matrix and writes the decoded values in bf16: an operand of a simulated product,
// which needs no hardware for the format.
//
//   z[a, c]   = x[gather[a], c]                (A, C); without gather x[a, c]
//   row       y = code x scale of the block, blocks along C
//   column    the same with blocks along the rows, of z or of z rotated; y is not transposed
//
// Blocks, scales and rounding are those of ops/quantise.h: y = dequantise(quantise(z)), bit for
// bit. y leaves the tensor's scale to the product's epilogue. That scale comes from the amax of z
// (of z rotated), which is found here or known. With e8m0 and ue4m3 scales y is exact
// (ops/dequantise.h).
//
// Segments offsets[s] <= a < offsets[s + 1] are independent: a block that spans rows (column
// copies, 16 x 16, 128 x 128) starts again at a segment's first row and is short at its end, as if
// padded with zeros. The rotation (ops/quantise/hadamard16.h) takes groups of 16 rows from the
// segment's first row on; a last group of fewer than 16 is NOT rotated. Both operands of a product
// along these rows leave it out, so their product is right.
//
// The stochastic draw of z[a, c] is half word i mod 8 of block i / 8 of the copy's key, whatever
// the segments:
//   row copy   i = a C + c        column copy   i = c K + a, K = A padded to whole blocks
//
// A block that is not finite decodes to NaN (without block scales: to 0, and S is NaN), and its
// copy's site is recorded in not_finite. Reference: tests/ref/fake_quantise.h.
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

// kCounted: y and scales hold an earlier copy of the same matrix; codes that differ are counted.
enum class Flips { kNotCounted, kCounted };

enum class FakeWay { kRow, kColumn };

struct FakeCopy {
  View<bf16, 2> y = {};              // out (A, C)   empty: no such copy
  View<float, 1> tensor_scale = {};  // out (2)      1 / S, S for kTensor, k1x16, k16x16
  // out (fake_quantise_scales)   decoding factors of the blocks; optional, and only for the one
  // copy of a call
  View<bf16, 1> scales = {};
  // kCounted takes effect with measures; it needs `scales` if the format has block scales.
  Flips flips = Flips::kNotCounted;
  uint32_t site = 0;  // reported in not_finite: 1 to 2^31 - 1
  QuantFormat format = {ElementFormat::kE4M3, ScaleKind::kTensor};  // the layout is ignored
  RandomKey key = {};  // for stochastic rounding; draw[0], if given, replaces its step
};

// The measures of one copy, in this order.
enum FakeMeasure {
  kFakeValues,      // number of values
  kFakeFlushed,     // values x != 0 that became 0
  kFakeSaturated,   // values whose scaled magnitude exceeds largest_scaled() (quantise/scale.h)
  kFakeErrors,      // sum of (y / S - x)^2, x rotated if the copy is
  kFakeSquares,     // sum of x^2
  kFakeFlips,       // codes, sign included, that differ from those of the earlier copy
  kFakeBlocks,      // number of blocks; 1 without block scales
  kFakeZeroBlocks,  // blocks with amax 0
  kFakeLowScales,   // amax > 0, the scale is 0 or its format's smallest positive number
  kFakeHighScales,  // the scale is its format's largest number (scales of one byte only)
  kFakeSums,        // measures before this one add up; from this one on the maximum is kept
  // Over the blocks with a finite amax > 0, from the bits b of the scale as a float (1 / S without
  // block scales). 0: no such block.
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
  // acc (2 kFakeMeasures)   of the row copy, then of the column copy; optional
  View<double, 1> measures = {};
  // acc (1)   mark of the first copy with a non-finite amax, of all calls: 2 site, + 1 for a NaN;
  // 0: none; optional
  View<uint32_t, 1> not_finite = {};
  View<float, 1> amax = {};      // tmp (2)   of z, of z rotated; if finds_amax()
  View<double, 2> partial = {};  // tmp (fake_quantise_pieces, 2 kFakeMeasures)   with measures
  View<const X, 2> x;            // in  (R, C)
  // in  (1)     amax of z if known: copies that are not rotated need not find it; optional
  View<const float, 1> known_amax = {};
  View<const int32_t, 1> gather = {};   // in  (A)     row of x for each row of z; empty: A = R
  View<const int32_t, 1> offsets = {};  // in  (S+1)   from 0 to A; empty: one segment
  View<const uint32_t, 1> draw = {};    // in  (1)     the step of both keys; optional
  ColumnRotation rotation = ColumnRotation::kNone;
  uint32_t signs = 0;  // of the rotation, 16 bits

  constexpr int64_t rows() const { return gather.empty() ? x.dim[0] : gather.dim[0]; }
  constexpr int rotated(FakeWay way) const {
    return way == FakeWay::kColumn && rotation == ColumnRotation::kHadamard16;
  }
  // True if the copy's amax needs a pass over z.
  constexpr int finds_amax(FakeWay way) const {
    const FakeCopy& copy = way == FakeWay::kRow ? row : column;
    const int needed = !copy.y.empty() && has_tensor_scale(copy.format.scale);
    return needed && (known_amax.empty() || rotated(way));
  }
  constexpr int finds_amax() const {
    return finds_amax(FakeWay::kRow) || finds_amax(FakeWay::kColumn);
  }
  // Amax of the values that a copy with a tensor scale quantises. Reads device memory.
  constexpr float amax_of(FakeWay way) const {
    if (rotated(way)) return amax[1];
    return known_amax.empty() ? amax[0] : known_amax[0];
  }
  constexpr int64_t segments() const { return offsets.empty() ? 1 : offsets.dim[0] - 1; }
};

// y and the measures have the same bits on every backend, except the last bits of kFakeErrors and
// kFakeSquares.
template <typename X>
void fake_quantise(Exec on, const FakeQuantise<X>& a);

// Rows of FakeQuantise::partial. rows: A.
int64_t fake_quantise_pieces(int64_t rows, int64_t segments, int64_t columns);
// Size of FakeCopy::scales, for the only copy of a call; 0 without block scales. rows: A.
int64_t fake_quantise_scales(ScaleKind kind, FakeWay way, int64_t rows, int64_t segments,
                             int64_t columns);

// x read once; y written, and read where it holds an earlier copy; about 20 operations per element
// and copy, and one to find the amax.
template <typename X>
Cost fake_quantise_cost(const FakeQuantise<X>& a) {
  const double elements = double(a.rows()) * double(a.x.dim[1]);
  const double copies = double(!a.row.y.empty()) + double(!a.column.y.empty()) +
                        0.5 * double(a.rotation == ColumnRotation::kHadamard16);
  const auto moved = [&a](const FakeCopy& c) {
    const bool earlier = c.flips == Flips::kCounted && !a.measures.empty();
    return (earlier ? 2.0 : 1.0) * view_bytes(c.y, c.scales) + view_bytes(c.tensor_scale);
  };
  return {.bytes = chosen_bytes(a.x, a.rows()) + moved(a.row) + moved(a.column) +
                   view_bytes(a.known_amax, a.gather, a.offsets, a.draw) +
                   2 * view_bytes(a.measures, a.not_finite),
          .flops = (20 * copies + double(a.finds_amax())) * elements};
}

// The CUDA bodies, which the functions above call where `on` has a GPU (fake_quantise.cu).
namespace gpu {
void fake_quantise(Exec on, const FakeQuantise<float>& a);
void fake_quantise(Exec on, const FakeQuantise<bf16>& a);
}  // namespace gpu

}  // namespace assay
