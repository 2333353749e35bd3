// What quantised products share: the decoded operands of the product at hand, and the counter of random draws.
#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "cuda/memory_plan.h"
#include "engine/config.h"
#include "engine/model.h"
#include "models/coded_scratch.h"
#include "ops/fake_quantise.h"

namespace assay {

// One decoded copy with the numbers that belong to it.
struct DecodedOperand {
  View<bf16, 1> y;              // (the largest operand)
  View<float, 1> tensor_scale;  // (2)

  View<bf16, 2> as(int64_t rows, int64_t columns) const {
    return {
        y.data, {rows, columns}
    };
  }
};

struct QuantScratch {
  DecodedOperand row, column, other;
  View<float, 1> amax;      // (2)
  View<double, 2> partial;  // (fake_quantise_pieces, 2 kFakeMeasures)   of sampled steps
  View<uint32_t, 1>
      not_finite;          // (1)   FakeQuantise::not_finite of everything quantised since bind()
  View<uint32_t, 1> draw;  // (1)   micro-batches since the run's begin: the step of every key
  CodedScratch coded;      // of native products
  uint64_t seed = 0;       // of stochastic rounding
  PrecisionPhase phase = PrecisionPhase::kRecipe;
  MicroScale::Sample sample = MicroScale::Sample::kNothing;

  bool sampled() const { return sample != MicroScale::Sample::kNothing; }
  // For micro-batches of `tokens`.
  void plan(MemoryPlan& plan, const ModelConfig& config, int64_t tokens);
};

}  // namespace assay
