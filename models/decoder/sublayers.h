// The two sublayers of a decoder block. Both are x + gain * branch(rmsnorm(x)); the addition is
// done by the next sublayer's norm, so that the stream is read once for both.
//
//   ResidualStream: the residual stream between two sublayers is resid + gain * branch.
//   out = forward(on, in, shape, pass):
//     out.resid = in.resid + in.gain * in.branch,  out.branch = f(rmsnorm(out.resid))
//   backward(on, in, shape, scale):
//     scratch.dresid    in: gradient of the stream after the sublayer; out: before it
//     scratch.dbranch   in: gradient of its branch, gain * dresid; out: of the previous branch
//
// Buffers are planned for the largest micro-batch; each call uses their first rows. A sublayer
// reads only the stream of the previous one and, in backward, what its own forward stored.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/config/config.h"
#include "engine/model.h"
#include "models/decoder/kv_cache.h"
#include "models/decoder/swiglu_ffn.h"
#include "models/linear/precision.h"
#include "models/linear/projection.h"
#include "models/parameters/purpose.h"
#include "models/parameters/store.h"

namespace assay {

// B sequences of T tokens; or, in score() and extend(), one sequence of all tokens of texts of any
// length, whose bounds `segment` gives.
struct BatchShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  View<const AttentionSegment, 1> segment = {};
  View<const int32_t, 1> position = {};  // (N) with segments
  // (N) row of each token in the KV cache, which then holds the segments' prefixes.
  View<const int32_t, 1> cache_row = {};
  // ScoredRows::segment and ::kept: the queries of the last attention, and the rows that are
  // computed after it. Empty: all.
  View<const AttentionSegment, 1> last_segment = {};
  View<const int32_t, 1> kept = {};
  int64_t tokens() const { return batch * sequence; }
  BatchShape behind_attention() const {  // the shape after the last attention
    return kept.dim[0] == 0 ? *this : BatchShape{.batch = 1, .sequence = kept.dim[0]};
  }
};

template <typename T>
struct ResidualStream {
  View<T, 2> resid;        // (N, C)
  View<T, 2> branch = {};  // (N, C)   empty before the first sublayer
  float gain = 1.0f;
  // Amax slot of the branch's gradient, updated in backward by the op that writes it; or empty.
  View<float, 1> dbranch_amax = {};
};

// Buffers that all layers share. Their contents do not outlive the sublayer that wrote them, except
// branch, dresid and dbranch, which pass between sublayers.
template <typename T>
struct Scratch {
  View<T, 2> branch;                 // (N, C)
  View<T, 2> dresid;                 // (N, C)   passed between sublayers in backward
  View<T, 2> dbranch;                // (N, C)   passed between sublayers in backward
  View<T, 2> dnorm;                  // (N, C)
  View<float, 2> norm_partial;       // (rmsnorm_backward_blocks(N), C)
  View<T, 2> dqkv;                   // (N, (Hq + 2 Hkv) D)
  View<float, 2> qk_norm_partial;    // (qk_norm_backward_blocks(N), 2 D)   with QK-norm
  View<float, 1> attention_partial;  // (attention_backward_scratch)
  View<T, 2> datt;                   // (N, Hq D)
  View<T, 1> dgate_up;               // the larger of N 2F and A 2Fe
  View<T, 1> dh;                     // half the size of dgate_up
  // MoE, A = N K.
  View<T, 2> dexpert_out;             // (A, C)
  View<T, 2> dexpert_in;              // (A, C)
  View<T, 2> shared_out;              // (N, C)
  View<float, 2> dgate;               // (N, K)
  View<T, 2> dlogits;                 // (N, E)
  View<float, 2> dchosen;             // (N, K)
  View<int32_t, 2> count_partial;     // (router_pieces, E)   for router_forward
  View<float, 2> share_partial;       // (router_pieces, E)
  View<double, 2> measure_partial;    // (router_pieces, kRouterMeasures)
  View<int32_t, 2> dispatch_partial;  // (dispatch_pieces(N), E)
  QuantScratch quant;                 // planned if a product is quantised

  // For inference, plans only what forward needs.
  void plan(MemoryPlan& plan, const ModelConfig& config, const BatchShape& largest,
            Purpose purpose);

 private:
  void plan_backward(MemoryPlan& plan, const ModelConfig& config, const BatchShape& largest);
};

// What sublayers are constructed from: the model, the formats of its products, shared buffers.
template <typename T>
struct BlockParts {
  const ModelConfig& config;
  const PrecisionTable& precision;
  const Scratch<T>& scratch;
  const KvCache<T>& cache;

  ProjectionSite site(ProductRole role, int64_t layer) const {
    return {role, layer, formats_of(precision, role, layer, config.layers),
            precision.native_capability, expert_widths(role, config)};
  }
};

// RMSNorm with the residual addition before it, and the values that its backward needs.
template <typename T>
struct ResidualNorm {
  View<const float, 1> weight;  // (C)
  View<float, 1> dweight;       // (C)
  View<T, 2> resid, y;          // (N, C)
  View<float, 1> rstd;          // (N)
  float eps = 0;

  void plan(MemoryPlan& plan, const std::string& name, const ModelConfig& config, int64_t tokens);
  void bind(const ParameterStore<T>& store, const std::string& name);
  // amax: amax slot of y; empty if no product needs it.
  void forward(Exec on, const ResidualStream<T>& in, int64_t tokens,
               View<float, 1> amax = {}) const;
  // `in` as in forward. If it has a branch, s.dbranch becomes the branch's gradient.
  void backward(Exec on, const Scratch<T>& s, const ResidualStream<T>& in, int64_t tokens) const;
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
  virtual ResidualStream<T> forward(Exec on, const ResidualStream<T>& in, const BatchShape& shape,
                                    Pass pass) = 0;
  // `in` as in forward.
  virtual void backward(Exec on, const ResidualStream<T>& in, const BatchShape& shape,
                        const MicroScale& scale) = 0;
  virtual int64_t workspace_bytes(Backend backend, int64_t tokens) const = 0;
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
