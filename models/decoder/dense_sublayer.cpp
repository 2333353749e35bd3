// The feed-forward sublayer of a dense block.
#include <algorithm>

#include "base/bf16.h"
#include "models/decoder/sublayer.h"
#include "models/decoder/swiglu_ffn.h"
#include "ops/grouped_swiglu.h"
#include "ops/linear.h"

namespace assay {

namespace {

template <typename T>
class DenseSublayer final : public Sublayer<T> {
 public:
  DenseSublayer(const BlockParts<T>& parts, int64_t layer)
      : config_(parts.config),
        layer_(layer),
        s_(parts.scratch),
        ffn_(parts.site("blocks." + std::to_string(layer) + ".ffn", ProductRole::kDenseFfn,
                        layer)) {}

  SublayerKind kind() const override { return SublayerKind::kDense; }
  void plan(MemoryPlan& plan, int64_t tokens) override {
    norm_.plan(plan, ffn_.name + ".norm", config_, tokens);
    ffn_.plan(plan, config_.ffn, tokens);
  }
  void bind(const ParameterStore<T>& store) override {
    norm_.bind(store, ffn_.name + ".norm");
    ffn_.bind(store);
  }
  ResidualStream<T> forward(Exec on, const PrecisionState& precision, const ResidualStream<T>& in,
                            View<T, 2> after, const BatchShape& shape, Pass) override {
    const int64_t n = shape.tokens();
    const QuantPass q{s_.quant, precision};
    const FfnAmax amax = amax_slots(q);
    norm_.forward(on, in, n, amax.x);
    const View<const T, 2> y = norm_.y.rows(0, n);
    if (last_op_adds(on) && ffn_.down_weight.quantised() == nullptr) {
      ffn_.forward(on, q, y, after.rows(0, n), amax, norm_.resid.rows(0, n));
      return {.resid = after};
    }
    ffn_.forward(on, q, y, s_.branch.rows(0, n), amax);
    return {.resid = norm_.resid, .branch = s_.branch, .gradient_amax = amax.dy};
  }
  void backward(Exec on, const PrecisionState& precision, const ResidualStream<T>& in,
                const BatchShape& shape, const MicroScale&) override {
    const int64_t n = shape.tokens();
    const QuantPass q{s_.quant, precision};
    ffn_.backward(on, q,
                  {.dx = s_.dnorm.rows(0, n),
                   .dh = s_.dh,
                   .dgate_up = s_.dgate_up,
                   .x = norm_.y.rows(0, n),
                   .dy = s_.dresid.rows(0, n),
                   .amax = amax_slots(q)});
    norm_.backward(on, s_, in, n);
  }
  int64_t workspace_bytes(Backend backend, int64_t tokens) const override {
    return std::max({linear_workspace_bytes<T>(backend, tokens, config_.hidden),
                     linear_workspace_bytes<T>(backend, tokens, config_.ffn),
                     backend == Backend::kGpu ? grouped_swiglu_dgrad_workspace_bytes(tokens) : 0});
  }
  void name_stored_gradients(std::vector<std::string>& names) const override {
    ffn_.name_stored(names);
  }
  std::vector<QuantisedProducts*> quantised() const override {
    return present({ffn_.gate_up_weight.quantised(), ffn_.down_weight.quantised()});
  }

 private:
  using Sublayer<T>::norm_;
  FfnAmax amax_slots(const QuantPass& q) const {
    const auto amax_slot = [&](SublayerTensor t) { return s_.quant.amax_slot(2 * layer_ + 1, t); };
    return ffn_.amax_slots(q, {.x = amax_slot(SublayerTensor::kInput),
                               .h = amax_slot(SublayerTensor::kInner),
                               .dy = amax_slot(SublayerTensor::kDbranch),
                               .dgate_up = amax_slot(SublayerTensor::kDinner)});
  }

  const ModelConfig config_;
  const int64_t layer_;
  const Scratch<T>& s_;
  SwigluFfn<T> ffn_;
};

}  // namespace

template <typename T>
std::unique_ptr<Sublayer<T>> make_dense_sublayer(const BlockParts<T>& parts, int64_t layer) {
  return std::make_unique<DenseSublayer<T>>(parts, layer);
}

template std::unique_ptr<Sublayer<float>> make_dense_sublayer(const BlockParts<float>&, int64_t);
template std::unique_ptr<Sublayer<bf16>> make_dense_sublayer(const BlockParts<bf16>&, int64_t);

}  // namespace assay
