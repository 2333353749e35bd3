#include "models/decoder/residual_norm.h"

#include "base/bf16.h"
#include "base/check.h"
#include "ops/rmsnorm.h"

namespace assay {

template <typename T>
void ResidualNorm<T>::plan(MemoryPlan& plan, const std::string& name, const ModelConfig& config,
                           int64_t tokens) {
  plan.add(Section::kActivations, name + ".resid", resid, {tokens, config.hidden});
  plan.add(Section::kActivations, name + ".y", y, {tokens, config.hidden});
  plan.add(Section::kActivations, name + ".rstd", rstd, {tokens});
  eps = static_cast<float>(config.norm_eps);
}

template <typename T>
void ResidualNorm<T>::bind(const ParameterStore<T>& store, const std::string& name) {
  weight = store.vector(name);
  dweight = store.vector_gradient(name);
}

template <typename T>
void ResidualNorm<T>::forward(Exec on, const ResidualStream<T>& in, int64_t tokens,
                              View<float, 1> amax) const {
  const View<T, 2> x = in.resid.rows(0, tokens);
  if (in.branch.empty()) {
    CHECK(in.resid.data == resid.data, "residual norm: %ld tokens of another stream", long(tokens));
    rmsnorm_forward<T>(on, {.y = y.rows(0, tokens),
                            .rstd = rstd.rows(0, tokens),
                            .amax = amax,
                            .x = x,
                            .weight = weight,
                            .eps = eps});
  } else {
    rmsnorm_forward<T>(on, {.y = y.rows(0, tokens),
                            .rstd = rstd.rows(0, tokens),
                            .resid = resid.rows(0, tokens),
                            .amax = amax,
                            .x = x,
                            .branch = in.branch.rows(0, tokens),
                            .weight = weight,
                            .gain = in.gain,
                            .eps = eps});
  }
}

template <typename T>
void ResidualNorm<T>::backward(Exec on, const Scratch<T>& s, const ResidualStream<T>& in,
                               int64_t tokens) const {
  const bool apart = in.gradient == BranchGradient::kDbranch;
  rmsnorm_backward<T>(on, {.dresid = s.dresid.rows(0, tokens),
                           .dbranch = apart ? s.dbranch.rows(0, tokens) : View<T, 2>{},
                           .amax = in.gradient_amax,
                           .dweight = dweight,
                           .partial = s.norm_partial,
                           .dy = s.dnorm.rows(0, tokens),
                           .resid = resid.rows(0, tokens),
                           .weight = weight,
                           .rstd = rstd.rows(0, tokens),
                           .gain = in.gain});
}

template struct ResidualNorm<float>;
template struct ResidualNorm<bf16>;

}  // namespace assay
