// The random bits of a piece of fake_quantise on the CPU.
#pragma once

#include <cstdint>

#include "base/random_lanes.h"
#include "ops/quantise/cpu_fake_piece.h"

namespace assay::fake {

static_assert(kFakeColumns == kHalvesDrawn);

// The random half words of the rows of a tile. A column copy draws those of eight rows together.
class Draws {
 public:
  Draws(const CopyPlan& plan, const Piece& p) : plan_(plan), piece_(p) {}

  const uint16_t* line(int64_t row) {
    if (plan_.to.format.rounding == Rounding::kNearest) return half_;
    if (plan_.way == FakeWay::kRow) {
      const int64_t first = row * plan_.draw_length + piece_.column;
      draw_halves(plan_.key, static_cast<uint64_t>(first / 8), half_);
      return half_;
    }
    if (row / 8 != eighth_) {
      eighth_ = row / 8;
      const int64_t stride = plan_.draw_length / 8;
      for (int64_t c = 0; c < piece_.columns; c += kBlocksDrawn) {
        const int64_t block = (piece_.column + c) * stride + eighth_;
        draw_words(plan_.key, static_cast<uint64_t>(block), static_cast<uint64_t>(stride),
                   words_[c / kBlocksDrawn]);
      }
    }
    const auto word = row % 8 / 2, shift = row % 2 * 16;
    for (int64_t c = 0; c < piece_.columns; ++c) {
      const uint32_t both = words_[c / kBlocksDrawn][word][c % kBlocksDrawn];
      half_[c] = static_cast<uint16_t>(both >> shift);
    }
    return half_;
  }

 private:
  const CopyPlan& plan_;
  const Piece& piece_;
  int64_t eighth_ = -1;
  uint32_t words_[kFakeColumns / kBlocksDrawn][4][kBlocksDrawn];
  uint16_t half_[kHalvesDrawn];
};

}  // namespace assay::fake
