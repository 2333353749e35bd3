// The inner loops of fake_quantise on the CPU: scales of many blocks at once, lines of elements
// encoded and decoded at once, what is counted of them. Chosen once a call, by format (line_coder),
// and called for lines of up to kFakeColumns elements.
#pragma once

#include "base/bf16.h"
#include "ops/quantise/partition.h"
#include "ops/quantise/round_to_format.h"

namespace assay {

// Number by number: of blocks, or of the elements of a line.
template <int64_t kCount>
struct ScaleLanes {
  alignas(64) float multiply[kCount];
  alignas(64) float divide[kCount];
  alignas(64) float decode[kCount];
  alignas(64) uint32_t sign[kCount];  // the bits of x's sign that stay
};
constexpr int64_t kMostBlocks = kHighBand / 16 * kFakeColumns;  // of a tile
using BlockLanes = ScaleLanes<kMostBlocks>;
using LineLanes = ScaleLanes<kFakeColumns>;

struct LineCoder {
  // `most`: bits of each block's largest magnitude; s: of the tensor.
  void (*block_scales)(BlockLanes& to, const QuantFormat& f, float s, const uint32_t* most,
                       int64_t n);
  // `half`: the elements' draws, of stochastic rounding.
  void (*encode)(bf16* y, const float* x, const LineLanes& scale, const ElementGrid& grid,
                 const uint16_t* half, int64_t n);
  ElementGrid grid;
};
LineCoder line_coder(const QuantFormat& f);

// sums[FakeMeasure] += those of a line; s of the tensor.
void measure_line(double* sums, const QuantFormat& f, const bf16* y, const float* x,
                  const LineLanes& scale, float s, int64_t n);

// Codes of a line that are others than those of `earlier`, each by the scale of its block.
int32_t count_flips(const ElementGrid& grid, const bf16* earlier, const float* earlier_decode,
                    const bf16* y, const float* decode, int64_t n);

}  // namespace assay
