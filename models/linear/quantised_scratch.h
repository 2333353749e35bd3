// What quantised products share: the state of a pass, and the memory for operands of the current
// product, amax slots and the counter of random draws.
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
#include "ops/weight_matrix.h"

namespace assay {

// A decoded copy of an operand, with its tensor scale.
struct DecodedOperand {
  View<bf16, 1> y;              // (size of the largest operand)
  View<float, 1> tensor_scale;  // (2)   1 / S, S

  View<bf16, 2> as(int64_t rows, int64_t columns) const { return {y.data, {rows, columns}}; }
};

// The tensors of a sublayer that its products read.
enum class SublayerTensor {
  kInput,        // the norm's y
  kInner,        // attention's out, or h
  kSharedInner,  // h of the shared expert
  kDbranch,      // gradient of the branch
  kDexpertOut,   // gradient of the experts' outputs
  kDinner,       // dqkv, or dgate_up
  kSharedDinner  // dgate_up of the shared expert
};
inline constexpr int kSublayerTensors = 7;

// What a step does about formats, and about what the weights' gradients hold. Passed beside Exec,
// from the decoder down to each product.
struct PrecisionState {
  PrecisionPhase phase = PrecisionPhase::kRecipe;
  bool training = false;  // a training pass: only then products are native
  MicroScale::Sample sample = MicroScale::Sample::kNothing;
  // kStore in the first micro-batch of a part, for gradients that were not zeroed
  // (Sublayer::name_stored_gradients).
  GradientSum gradients = GradientSum::kAdd;

  bool sampled() const { return sample != MicroScale::Sample::kNothing; }
  bool in_recipe() const { return phase == PrecisionPhase::kRecipe; }
};

// Memory only.
struct QuantScratch {
  DecodedOperand row, column, other;
  View<float, 1> amax;  // (2)
  // (sublayers, kSublayerTensors) amax slots: zeroed at the start of a forward pass, then raised to
  // the largest magnitude of a tensor by the op that writes it; empty if no product needs them.
  View<float, 2> known_amax;
  View<double, 2> partial;       // (fake_quantise_pieces, 2 kFakeMeasures)   in sampled steps
  View<uint32_t, 1> not_finite;  // (1)   of FakeQuantise and Quantise, until read_back()
  View<uint32_t, 1> draw;        // (1)   micro-batches since the run began: step of all RandomKeys
  NativeScratch coded;           // for native products
  uint64_t seed = 0;             // of stochastic rounding

  // Amax slot of a tensor of a sublayer: number 2 l is the attention of block l, 2 l + 1 its
  // feed-forward sublayer. Empty if there are no slots.
  View<float, 1> amax_slot(int64_t sublayer, SublayerTensor tensor) const {
    if (known_amax.empty()) return {};
    return {known_amax.row(sublayer) + int(tensor), {1}};
  }
  // For micro-batches of up to `tokens`. Does not plan known_amax and coded.
  void plan(MemoryPlan& plan, const ModelConfig& config, int64_t tokens);
};

// The argument of every quantised product.
struct QuantPass {
  const QuantScratch& scratch;
  PrecisionState state;
};

}  // namespace assay
