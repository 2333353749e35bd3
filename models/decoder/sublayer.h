// The two sublayers of a decoder block. Both are x + gain * branch(rmsnorm(x)); the addition is
// done by the last op of the branch on a GPU (last_op_adds()), else by the next sublayer's norm, so
// that the stream is read once for both.
//
//   ResidualStream: the residual stream between two sublayers is resid + gain * branch.
//   out = forward(on, in, after, shape, pass):
//     x = in.resid + in.gain * in.branch, stored as norm().resid
//     out: x and f(rmsnorm(x)), or `after`, which has become x + gain * f(rmsnorm(x))
//   backward(on, in, shape, scale):
//     scratch.dresid    in: gradient of the stream after the sublayer; out: before it
//     scratch.dbranch   the same for the gradient of a branch, gain * dresid, where the branch
//                       asks for it (BranchGradient)
//
// Buffers are planned for the largest micro-batch; each call uses their first rows. A sublayer
// reads only the stream of the previous one and, in backward, what its own forward stored.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/model.h"
#include "models/decoder/kv_cache.h"
#include "models/decoder/residual_norm.h"
#include "models/decoder/scratch.h"
#include "models/linear/precision.h"
#include "models/linear/quantised_products.h"
#include "models/parameters/store.h"

namespace assay {

// What sublayers are constructed from: the model, the formats of its products, shared buffers.
template <typename T>
struct BlockParts {
  const ModelConfig& config;
  const PrecisionTable& precision;
  const Scratch<T>& scratch;
  const KvCache<T>& cache;
  int64_t sequences;  // of the largest micro-batch
  bool trains;        // false: for inference, without gradients

  ProductSite site(std::string weight, ProductRole role, int64_t layer) const {
    return {.weight = std::move(weight),
            .role = role,
            .layer = layer,
            .formats = formats_of(precision, role, layer, config.layers),
            .native_capability = precision.native_capability,
            .experts = expert_widths(role, config)};
  }
};

// kEvaluate does not change the step's counts and statistics.
enum class Pass { kTrain, kEvaluate };

// Sublayers of the same kind plan the same buffers.
enum class SublayerKind { kAttention, kDense, kMoe };

template <typename T>
class Sublayer {
 public:
  virtual ~Sublayer() = default;
  virtual SublayerKind kind() const = 0;
  virtual void plan(MemoryPlan& plan, int64_t tokens) = 0;
  virtual void bind(const ParameterStore<T>& store) = 0;
  // after: the next norm's resid.
  virtual ResidualStream<T> forward(Exec on, const PrecisionState& precision,
                                    const ResidualStream<T>& in, View<T, 2> after,
                                    const BatchShape& shape, Pass pass) = 0;
  // `in` as in forward.
  virtual void backward(Exec on, const PrecisionState& precision, const ResidualStream<T>& in,
                        const BatchShape& shape, const MicroScale& scale) = 0;
  virtual int64_t workspace_bytes(Backend backend, int64_t tokens) const = 0;
  // Adds the names of the gradients that a backward pass with PrecisionState::gradients kStore
  // writes without reading them.
  virtual void name_stored_gradients(std::vector<std::string>& names) const = 0;
  // Products of the quantised weights, in order.
  virtual std::vector<QuantisedProducts*> quantised() const = 0;
  const ResidualNorm<T>& norm() const { return norm_; }

 protected:
  ResidualNorm<T> norm_;
};

// x + gain * Attention(RMSNorm(x)).
template <typename T>
std::unique_ptr<Sublayer<T>> make_attention_sublayer(const BlockParts<T>& parts, int64_t layer,
                                                     const View<float, 2>& cos,
                                                     const View<float, 2>& sin);
// x + SwiGLU(RMSNorm(x)).
template <typename T>
std::unique_ptr<Sublayer<T>> make_dense_sublayer(const BlockParts<T>& parts, int64_t layer);

// Drops null entries.
inline std::vector<QuantisedProducts*> present(std::vector<QuantisedProducts*> projections) {
  std::erase(projections, nullptr);
  return projections;
}

}  // namespace assay
