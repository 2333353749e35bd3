// The inner loops of fake_quantise on the CPU: scales of many blocks, encoding and decoding of
// lines of elements, and their measures. Selected once per call by format (line_coder), and called
// for lines of up to kFakeColumns elements.
#pragma once

#include "base/bf16.h"
#include "ops/quantise/partition.h"
#include "ops/quantise/round_to_format.h"

namespace assay {

// One entry per block, or per element of a line.
template <int64_t kCount>
struct ScaleLanes {
  alignas(64) float multiply[kCount];
  alignas(64) float divide[kCount];
  alignas(64) float decode[kCount];
  alignas(64) uint32_t sign[kCount];  // mask of the sign of x; 0 drops it
};
constexpr int64_t kMostBlocks = kHighBand / 16 * kFakeColumns;  // blocks per tile
using BlockLanes = ScaleLanes<kMostBlocks>;
using LineLanes = ScaleLanes<kFakeColumns>;

struct LineCoder {
  // `most`: bits of each block's largest magnitude; s: the tensor scale.
  void (*block_scales)(BlockLanes& to, const QuantFormat& f, float s, const uint32_t* most,
                       int64_t n);
  // `half`: random bits of the elements, for stochastic rounding.
  void (*encode)(bf16* y, const float* x, const LineLanes& scale, const ElementGrid& grid,
                 const uint16_t* half, int64_t n);
  ElementGrid grid;
};
LineCoder line_coder(const QuantFormat& f);

// Adds the measures of a line to sums[FakeMeasure]; s: the tensor scale.
void measure_line(double* sums, const QuantFormat& f, const bf16* y, const float* x,
                  const LineLanes& scale, float s, int64_t n);

// Number of codes of a line that differ from `earlier`, each decoded by the scale of its block.
int32_t count_flips(const ElementGrid& grid, const bf16* earlier, const float* earlier_decode,
                    const bf16* y, const float* decode, int64_t n);

}  // namespace assay
