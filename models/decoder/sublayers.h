// The two halves of a decoder block. Both are x + gain * branch(rmsnorm(x)); the addition is done
// by the next half's norm, which reads the stream once for both.
//
//   Stream: the residual stream between two halves is resid + gain * branch.
//   half.forward(on, in, shape, out): out.resid = in.resid + in.gain * in.branch,  out.branch = f(rmsnorm(out.resid))
//   half.backward: the same list upside down. scratch.dresid arrives as the gradient of the stream behind the half
//   and leaves as the gradient of the stream before it; scratch.dbranch arrives as gain * dresid of this half and
//   leaves as that of the half before.
//
// Buffers are planned for the largest micro-batch and cut to the rows at hand. A half reads nothing
// of another half but its Stream, and, in backward, what its own forward left.
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

// Sequences of one length, or one "sequence" of texts of any lengths (Model::score), which says
// where they lie.
struct BatchShape {
  int64_t batch = 0;
  int64_t sequence = 0;
  View<const AttentionSegment, 1> segment = {};
  View<const int32_t, 1> position = {};   // (N) with segments
  View<const int32_t, 1> cache_row = {};  // (N) with texts in a cache, which are the prefixes
  // Of models/decoder/scored_rows.h: what the last attention computes, and the rows that go on
  // behind it. Empty: all.
  View<const AttentionSegment, 1> last_segment = {};
  View<const int32_t, 1> kept = {};
  int64_t tokens() const { return batch * sequence; }
  BatchShape behind_attention() const {  // the last
    return kept.dim[0] == 0 ? *this : BatchShape{.batch = 1, .sequence = kept.dim[0]};
  }
};

template <typename T>
struct ResidualStream {
  View<T, 2> resid;        // (N, C)
  View<T, 2> branch = {};  // (N, C)   absent before the first half
  float gain = 1.0f;
  View<float, 1> dbranch_amax =
      {};  // raised in backward by the op that writes the branch's gradient; or empty
};

// What all layers share: nothing in it outlives the half that wrote it, but the two gradients
// handed on.
template <typename T>
struct Scratch {
  View<T, 2> branch;                 // (N, C)
  View<T, 2> dresid;                 // (N, C)   handed from half to half in backward
  View<T, 2> dbranch;                // (N, C)   likewise
  View<T, 2> dnorm;                  // (N, C)
  View<float, 2> norm_partial;       // (rmsnorm_backward_blocks(N), C)
  View<T, 2> dqkv;                   // (N, (Hq + 2 Hkv) D)
  View<float, 2> qk_norm_partial;    // (qk_norm_backward_blocks(N), 2 D)   with QK-norm
  View<float, 1> attention_partial;  // (attention_backward_scratch)
  View<T, 2> datt;                   // (N, Hq D)
  View<T, 1> dgate_up;               // the largest of N 2F and A 2Fe
  View<T, 1> dh;                     // half of it
  // MoE, A = N K.
  View<T, 2> dexpert_out;             // (A, C)
  View<T, 2> dexpert_in;              // (A, C)
  View<T, 2> shared_out;              // (N, C)
  View<float, 2> dgate;               // (N, K)
  View<T, 2> dlogits;                 // (N, E)
  View<float, 2> dchosen;             // (N, K)
  View<int32_t, 2> count_partial;     // (router_pieces, E)   of router_forward
  View<float, 2> share_partial;       // (router_pieces, E)
  View<double, 2> measure_partial;    // (router_pieces, kRouterMeasures)
  View<int32_t, 2> dispatch_partial;  // (dispatch_pieces(N), E)
  QuantScratch quant;                 // planned where a product is quantised

  // For inference only what forward needs.
  void plan(MemoryPlan& plan, const ModelConfig& config, const BatchShape& largest,
            Purpose purpose);

 private:
  void plan_backward(MemoryPlan& plan, const ModelConfig& config, const BatchShape& largest);
};

// What the halves of a block are made of: the model, the formats of its products, what all layers
// share.
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

// RMSNorm with the residual addition before it, and what backward needs of it.
template <typename T>
struct ResidualNorm {
  View<const float, 1> weight;  // (C)
  View<float, 1> dweight;       // (C)
  View<T, 2> resid, y;          // (N, C)
  View<float, 1> rstd;          // (N)
  float eps = 0;

  void plan(MemoryPlan& plan, const std::string& name, const ModelConfig& config, int64_t tokens);
  void bind(const ParameterStore<T>& store, const std::string& name);
  // amax: of y, where a product asks for it.
  void forward(Exec on, const ResidualStream<T>& in, int64_t tokens,
               View<float, 1> amax = {}) const;
  // `in` as forward saw it: where it had a branch, scratch.dbranch becomes the branch's gradient.
  void backward(Exec on, const Scratch<T>& s, const ResidualStream<T>& in, int64_t tokens) const;
};

// Evaluation leaves the step's counts and statistics alone.
enum class Pass { kTrain, kEvaluate };

// Halves of a kind plan the same buffers.
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
  // `in` as forward saw it.
  virtual void backward(Exec on, const ResidualStream<T>& in, const BatchShape& shape,
                        const MicroScale& scale) = 0;
  virtual int64_t workspace_bytes(Backend backend, int64_t tokens) const = 0;
  // Of weights whose products are quantised, in order.
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

// Those of `projections` that are there.
inline std::vector<QuantisedProducts*> present(std::vector<QuantisedProducts*> projections) {
  std::erase(projections, nullptr);
  return projections;
}

}  // namespace assay
