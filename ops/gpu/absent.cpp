// What a call on a GPU does where this build has no CUDA body for the op. The definitions are weak:
// one in ops/<op>.cu replaces them.
#include "base/check.h"
#include "ops/gpu/ops.h"

namespace assay::gpu {

namespace {

[[noreturn]] void absent(const char* op) {
  throw UserError(strprintf("%s: this build has no CUDA kernel for it", op),
                  "run on the CPU (--device cpu), or build where CMake finds the CUDA toolkit");
}

}  // namespace

[[gnu::weak]] void rmsnorm_forward(Exec, const RmsNormForward<float>&) {
  absent("rmsnorm_forward");
}
[[gnu::weak]] void rmsnorm_forward(Exec, const RmsNormForward<bf16>&) {
  absent("rmsnorm_forward");
}
[[gnu::weak]] void rmsnorm_backward(Exec, const RmsNormBackward<float>&) {
  absent("rmsnorm_backward");
}
[[gnu::weak]] void rmsnorm_backward(Exec, const RmsNormBackward<bf16>&) {
  absent("rmsnorm_backward");
}
[[gnu::weak]] void embedding_forward(Exec, const EmbeddingForward<float>&) {
  absent("embedding_forward");
}
[[gnu::weak]] void embedding_forward(Exec, const EmbeddingForward<bf16>&) {
  absent("embedding_forward");
}
[[gnu::weak]] void embedding_backward(Exec, const EmbeddingBackward<float>&) {
  absent("embedding_backward");
}
[[gnu::weak]] void embedding_backward(Exec, const EmbeddingBackward<bf16>&) {
  absent("embedding_backward");
}
[[gnu::weak]] void varlen_attention(Exec, const VarlenAttention<float>&) {
  absent("varlen_attention");
}
[[gnu::weak]] void varlen_attention(Exec, const VarlenAttention<bf16>&) {
  absent("varlen_attention");
}
[[gnu::weak]] void rope_forward(Exec, const RopeForward<float>&) {
  absent("rope_forward");
}
[[gnu::weak]] void rope_forward(Exec, const RopeForward<bf16>&) {
  absent("rope_forward");
}
[[gnu::weak]] void rope_backward(Exec, const RopeBackward<float>&) {
  absent("rope_backward");
}
[[gnu::weak]] void rope_backward(Exec, const RopeBackward<bf16>&) {
  absent("rope_backward");
}
[[gnu::weak]] void qk_norm_forward(Exec, const QkNormForward<float>&) {
  absent("qk_norm_forward");
}
[[gnu::weak]] void qk_norm_forward(Exec, const QkNormForward<bf16>&) {
  absent("qk_norm_forward");
}
[[gnu::weak]] void qk_norm_backward(Exec, const QkNormBackward<float>&) {
  absent("qk_norm_backward");
}
[[gnu::weak]] void qk_norm_backward(Exec, const QkNormBackward<bf16>&) {
  absent("qk_norm_backward");
}
[[gnu::weak]] void swiglu_forward(Exec, const SwigluForward<float>&) {
  absent("swiglu_forward");
}
[[gnu::weak]] void swiglu_forward(Exec, const SwigluForward<bf16>&) {
  absent("swiglu_forward");
}
[[gnu::weak]] void swiglu_backward(Exec, const SwigluBackward<float>&) {
  absent("swiglu_backward");
}
[[gnu::weak]] void swiglu_backward(Exec, const SwigluBackward<bf16>&) {
  absent("swiglu_backward");
}
[[gnu::weak]] void swiglu_codes_forward(Exec, const SwigluCodesForward&) {
  absent("swiglu_codes_forward");
}
[[gnu::weak]] void swiglu_codes_backward(Exec, const SwigluCodesBackward&) {
  absent("swiglu_codes_backward");
}
[[gnu::weak]] void attention_forward(Exec, const AttentionForward<float>&) {
  absent("attention_forward");
}
[[gnu::weak]] void attention_forward(Exec, const AttentionForward<bf16>&) {
  absent("attention_forward");
}
[[gnu::weak]] void attention_backward(Exec, const AttentionBackward<float>&) {
  absent("attention_backward");
}
[[gnu::weak]] void attention_backward(Exec, const AttentionBackward<bf16>&) {
  absent("attention_backward");
}
[[gnu::weak]] void linear_forward(Exec, const LinearForward<float>&) {
  absent("linear_forward");
}
[[gnu::weak]] void linear_forward(Exec, const LinearForward<bf16>&) {
  absent("linear_forward");
}
[[gnu::weak]] void linear_forward(Exec, const LinearForward<bf16, float>&) {
  absent("linear_forward");
}
[[gnu::weak]] void linear_dgrad(Exec, const LinearDgrad<float>&) {
  absent("linear_dgrad");
}
[[gnu::weak]] void linear_dgrad(Exec, const LinearDgrad<bf16>&) {
  absent("linear_dgrad");
}
[[gnu::weak]] void linear_wgrad(Exec, const LinearWgrad<float>&) {
  absent("linear_wgrad");
}
[[gnu::weak]] void linear_wgrad(Exec, const LinearWgrad<bf16>&) {
  absent("linear_wgrad");
}
[[gnu::weak]] void scaled_linear(Exec, const ScaledLinear<float>&) {
  absent("scaled_linear");
}
[[gnu::weak]] void scaled_linear(Exec, const ScaledLinear<bf16>&) {
  absent("scaled_linear");
}
[[gnu::weak]] void grouped_linear_forward(Exec, const GroupedForward<float>&) {
  absent("grouped_linear_forward");
}
[[gnu::weak]] void grouped_linear_forward(Exec, const GroupedForward<bf16>&) {
  absent("grouped_linear_forward");
}
[[gnu::weak]] void grouped_linear_dgrad(Exec, const GroupedDgrad<float>&) {
  absent("grouped_linear_dgrad");
}
[[gnu::weak]] void grouped_linear_dgrad(Exec, const GroupedDgrad<bf16>&) {
  absent("grouped_linear_dgrad");
}
[[gnu::weak]] void grouped_linear_wgrad(Exec, const GroupedWgrad<float>&) {
  absent("grouped_linear_wgrad");
}
[[gnu::weak]] void grouped_linear_wgrad(Exec, const GroupedWgrad<bf16>&) {
  absent("grouped_linear_wgrad");
}
[[gnu::weak]] void grouped_scaled_linear(Exec, const GroupedScaledLinear&) {
  absent("grouped_scaled_linear");
}
[[gnu::weak]] void grouped_scaled_swiglu_forward(Exec, const GroupedScaledSwigluForward&) {
  absent("grouped_scaled_swiglu_forward");
}
[[gnu::weak]] void grouped_scaled_swiglu_dgrad(Exec, const GroupedScaledSwigluDgrad&) {
  absent("grouped_scaled_swiglu_dgrad");
}
[[gnu::weak]] void grouped_swiglu_forward(Exec, const GroupedSwigluForward<float>&) {
  absent("grouped_swiglu_forward");
}
[[gnu::weak]] void grouped_swiglu_forward(Exec, const GroupedSwigluForward<bf16>&) {
  absent("grouped_swiglu_forward");
}
[[gnu::weak]] void grouped_swiglu_dgrad(Exec, const GroupedSwigluDgrad<float>&) {
  absent("grouped_swiglu_dgrad");
}
[[gnu::weak]] void grouped_swiglu_dgrad(Exec, const GroupedSwigluDgrad<bf16>&) {
  absent("grouped_swiglu_dgrad");
}
[[gnu::weak]] void router_backward(Exec, const RouterBackward<float>&) {
  absent("router_backward");
}
[[gnu::weak]] void router_backward(Exec, const RouterBackward<bf16>&) {
  absent("router_backward");
}
[[gnu::weak]] void combine_forward(Exec, const CombineForward<float>&) {
  absent("combine_forward");
}
[[gnu::weak]] void combine_forward(Exec, const CombineForward<bf16>&) {
  absent("combine_forward");
}
[[gnu::weak]] void combine_backward(Exec, const CombineBackward<float>&) {
  absent("combine_backward");
}
[[gnu::weak]] void combine_backward(Exec, const CombineBackward<bf16>&) {
  absent("combine_backward");
}
[[gnu::weak]] void reduce_by_token(Exec, const ReduceByToken<float>&) {
  absent("reduce_by_token");
}
[[gnu::weak]] void reduce_by_token(Exec, const ReduceByToken<bf16>&) {
  absent("reduce_by_token");
}
[[gnu::weak]] void head_loss(Exec, const HeadLoss<float>&) {
  absent("head_loss");
}
[[gnu::weak]] void head_loss(Exec, const HeadLoss<bf16>&) {
  absent("head_loss");
}
[[gnu::weak]] void head_loss_eval(Exec, const HeadLossEval<float>&) {
  absent("head_loss_eval");
}
[[gnu::weak]] void head_loss_eval(Exec, const HeadLossEval<bf16>&) {
  absent("head_loss_eval");
}
[[gnu::weak]] void kv_cache_write(Exec, const KvCacheWrite<float>&) {
  absent("kv_cache_write");
}
[[gnu::weak]] void kv_cache_write(Exec, const KvCacheWrite<bf16>&) {
  absent("kv_cache_write");
}
[[gnu::weak]] void adamw(Exec, const AdamW<float>&) {
  absent("adamw");
}
[[gnu::weak]] void adamw(Exec, const AdamW<bf16>&) {
  absent("adamw");
}
[[gnu::weak]] void cast(Exec, const Cast<bf16, float>&) {
  absent("cast");
}
[[gnu::weak]] void cast(Exec, const Cast<float, bf16>&) {
  absent("cast");
}
[[gnu::weak]] void amax(Exec, const Amax<float>&) {
  absent("amax");
}
[[gnu::weak]] void amax(Exec, const Amax<bf16>&) {
  absent("amax");
}
[[gnu::weak]] void hadamard(Exec, const Hadamard<float>&) {
  absent("hadamard");
}
[[gnu::weak]] void hadamard(Exec, const Hadamard<bf16>&) {
  absent("hadamard");
}
[[gnu::weak]] void quantise(Exec, const Quantise<float>&) {
  absent("quantise");
}
[[gnu::weak]] void quantise(Exec, const Quantise<bf16>&) {
  absent("quantise");
}
[[gnu::weak]] void dequantise(Exec, const Dequantise<float>&) {
  absent("dequantise");
}
[[gnu::weak]] void dequantise(Exec, const Dequantise<bf16>&) {
  absent("dequantise");
}
[[gnu::weak]] void fake_quantise(Exec, const FakeQuantise<float>&) {
  absent("fake_quantise");
}
[[gnu::weak]] void fake_quantise(Exec, const FakeQuantise<bf16>&) {
  absent("fake_quantise");
}
[[gnu::weak]] void router_forward(Exec, const RouterForward&) {
  absent("router_forward");
}
[[gnu::weak]] void router_bias_update(Exec, const RouterBiasUpdate&) {
  absent("router_bias_update");
}
[[gnu::weak]] void router_margin(Exec, const RouterMargin&) {
  absent("router_margin");
}
[[gnu::weak]] void dispatch(Exec, const Dispatch&) {
  absent("dispatch");
}
[[gnu::weak]] void global_norm(Exec, const GlobalNorm&) {
  absent("global_norm");
}
[[gnu::weak]] void cast_stochastic(Exec, const CastStochastic&) {
  absent("cast_stochastic");
}

// Without a CUDA body nothing is needed for it.
[[gnu::weak]] int64_t embedding_backward_workspace_bytes(int64_t, int64_t) {
  return 0;
}
[[gnu::weak]] int64_t head_loss_chunk_bytes(int64_t, int64_t, int64_t) {
  return 0;
}
[[gnu::weak]] void zero(Exec, const Zero&) {
  absent("zero");
}
[[gnu::weak]] void checksum(Exec, const Checksum&) {
  absent("checksum");
}

}  // namespace assay::gpu
