// What quantised products share: the decoded operands of the product at hand, and the counter of
// random draws.
#pragma once

#include <cstdint>

#include "base/bf16.h"
#include "base/view.h"
#include "cuda/exec.h"
#include "cuda/memory_plan.h"
#include "engine/config/config.h"
#include "engine/model.h"
#include "models/linear/native_scratch.h"
#include "ops/fake_quantise.h"

namespace assay {

// One decoded copy with the numbers that belong to it.
struct DecodedOperand {
  View<bf16, 1> y;              // (the largest operand)
  View<float, 1> tensor_scale;  // (2)

  View<bf16, 2> as(int64_t rows, int64_t columns) const { return {y.data, {rows, columns}}; }
};

// The tensors of one half of a block that its products read.
enum class SublayerTensor {
  kInput,        // the norm's y
  kInner,        // attention's out, or h
  kSharedInner,  // h of the shared expert
  kDbranch,
  kDexpertOut,
  kDinner,  // dqkv, or dgate_up
  kSharedDinner
};
inline constexpr int kSublayerTensors = 7;

struct QuantScratch {
  DecodedOperand row, column, other;
  View<float, 1> amax;  // (2)
  // (halves, kSublayerTensors)   0 when a micro-batch begins, raised to the largest magnitude of an operand by the ops that write
  // it, where a product asks for that; empty where none ever does
  View<float, 2> known_amax;
  View<double, 2> partial;       // (fake_quantise_pieces, 2 kFakeMeasures)   of sampled steps
  View<uint32_t, 1> not_finite;  // (1)   of FakeQuantise and Quantise: all until read_back()
  View<uint32_t, 1> draw;        // (1)   micro-batches since the run's begin: the step of every key
  NativeScratch coded;           // of native products
  uint64_t seed = 0;             // of stochastic rounding
  PrecisionPhase phase = PrecisionPhase::kRecipe;
  bool training = false;  // the pass at hand, whose products may be native; others are decoded
  MicroScale::Sample sample = MicroScale::Sample::kNothing;

  // The half with this number's word.
  View<float, 1> amax_slot(int64_t half, SublayerTensor tensor) const {
    if (known_amax.empty()) return {};
    return {known_amax.row(half) + int(tensor), {1}};
  }
  bool sampled() const { return sample != MicroScale::Sample::kNothing; }
  // For micro-batches of `tokens`.
  void plan(MemoryPlan& plan, const ModelConfig& config, int64_t tokens);
};

}  // namespace assay
