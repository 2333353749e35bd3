// The CUDA bodies of the ops, as plain overloads: defined in ops/<op>.cu, called by the public
// functions of ops/<op>.cpp when Exec::gpu is set. Where a build has no CUDA, or an op no CUDA body
// yet, ops/gpu/absent.cpp refuses with a user error.
#pragma once

#include "ops/adamw.h"
#include "ops/amax.h"
#include "ops/attention.h"
#include "ops/cast.h"
#include "ops/checksum.h"
#include "ops/combine.h"
#include "ops/dequantise.h"
#include "ops/dispatch.h"
#include "ops/embedding.h"
#include "ops/fake_quantise.h"
#include "ops/global_norm.h"
#include "ops/grouped_linear.h"
#include "ops/grouped_scaled.h"
#include "ops/grouped_swiglu.h"
#include "ops/hadamard.h"
#include "ops/head_loss.h"
#include "ops/kv_cache_write.h"
#include "ops/linear.h"
#include "ops/qk_norm.h"
#include "ops/quantise.h"
#include "ops/rmsnorm.h"
#include "ops/rope.h"
#include "ops/router.h"
#include "ops/scaled_linear.h"
#include "ops/swiglu.h"
#include "ops/swiglu_codes.h"
#include "ops/varlen_attention.h"
#include "ops/zero.h"

namespace assay::gpu {

void rmsnorm_forward(Exec on, const RmsNormForward<float>& a);
void rmsnorm_forward(Exec on, const RmsNormForward<bf16>& a);
void rmsnorm_backward(Exec on, const RmsNormBackward<float>& a);
void rmsnorm_backward(Exec on, const RmsNormBackward<bf16>& a);
void embedding_forward(Exec on, const EmbeddingForward<float>& a);
void embedding_forward(Exec on, const EmbeddingForward<bf16>& a);
void embedding_backward(Exec on, const EmbeddingBackward<float>& a);
void embedding_backward(Exec on, const EmbeddingBackward<bf16>& a);
void rope_forward(Exec on, const RopeForward<float>& a);
void rope_forward(Exec on, const RopeForward<bf16>& a);
void rope_backward(Exec on, const RopeBackward<float>& a);
void rope_backward(Exec on, const RopeBackward<bf16>& a);
void qk_norm_forward(Exec on, const QkNormForward<float>& a);
void qk_norm_forward(Exec on, const QkNormForward<bf16>& a);
void qk_norm_backward(Exec on, const QkNormBackward<float>& a);
void qk_norm_backward(Exec on, const QkNormBackward<bf16>& a);
void swiglu_forward(Exec on, const SwigluForward<float>& a);
void swiglu_forward(Exec on, const SwigluForward<bf16>& a);
void swiglu_backward(Exec on, const SwigluBackward<float>& a);
void swiglu_backward(Exec on, const SwigluBackward<bf16>& a);
void swiglu_codes_forward(Exec on, const SwigluCodesForward& a);
void swiglu_codes_backward(Exec on, const SwigluCodesBackward& a);
void attention_forward(Exec on, const AttentionForward<float>& a);
void attention_forward(Exec on, const AttentionForward<bf16>& a);
void attention_backward(Exec on, const AttentionBackward<float>& a);
void attention_backward(Exec on, const AttentionBackward<bf16>& a);
void varlen_attention(Exec on, const VarlenAttention<float>& a);
void varlen_attention(Exec on, const VarlenAttention<bf16>& a);
void linear_forward(Exec on, const LinearForward<float>& a);
void linear_forward(Exec on, const LinearForward<bf16>& a);
void linear_forward(Exec on, const LinearForward<bf16, float>& a);
void linear_dgrad(Exec on, const LinearDgrad<float>& a);
void linear_dgrad(Exec on, const LinearDgrad<bf16>& a);
void linear_wgrad(Exec on, const LinearWgrad<float>& a);
void linear_wgrad(Exec on, const LinearWgrad<bf16>& a);
void scaled_linear(Exec on, const ScaledLinear<float>& a);
void scaled_linear(Exec on, const ScaledLinear<bf16>& a);
void grouped_scaled_linear(Exec on, const GroupedScaledLinear& a);
void grouped_scaled_swiglu_forward(Exec on, const GroupedScaledSwigluForward& a);
void grouped_scaled_swiglu_dgrad(Exec on, const GroupedScaledSwigluDgrad& a);
void grouped_linear_forward(Exec on, const GroupedForward<float>& a);
void grouped_linear_forward(Exec on, const GroupedForward<bf16>& a);
void grouped_linear_dgrad(Exec on, const GroupedDgrad<float>& a);
void grouped_linear_dgrad(Exec on, const GroupedDgrad<bf16>& a);
void grouped_linear_wgrad(Exec on, const GroupedWgrad<float>& a);
void grouped_linear_wgrad(Exec on, const GroupedWgrad<bf16>& a);
void grouped_swiglu_forward(Exec on, const GroupedSwigluForward<float>& a);
void grouped_swiglu_forward(Exec on, const GroupedSwigluForward<bf16>& a);
void grouped_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<float>& a);
void grouped_swiglu_dgrad(Exec on, const GroupedSwigluDgrad<bf16>& a);
void router_backward(Exec on, const RouterBackward<float>& a);
void router_backward(Exec on, const RouterBackward<bf16>& a);
void combine_forward(Exec on, const CombineForward<float>& a);
void combine_forward(Exec on, const CombineForward<bf16>& a);
void combine_backward(Exec on, const CombineBackward<float>& a);
void combine_backward(Exec on, const CombineBackward<bf16>& a);
void reduce_by_token(Exec on, const ReduceByToken<float>& a);
void reduce_by_token(Exec on, const ReduceByToken<bf16>& a);
void head_loss(Exec on, const HeadLoss<float>& a);
void head_loss(Exec on, const HeadLoss<bf16>& a);
void head_loss_eval(Exec on, const HeadLossEval<float>& a);
void head_loss_eval(Exec on, const HeadLossEval<bf16>& a);
void kv_cache_write(Exec on, const KvCacheWrite<float>& a);
void kv_cache_write(Exec on, const KvCacheWrite<bf16>& a);
void adamw(Exec on, const AdamW<float>& a);
void adamw(Exec on, const AdamW<bf16>& a);
void cast(Exec on, const Cast<bf16, float>& a);
void cast(Exec on, const Cast<float, bf16>& a);
void amax(Exec on, const Amax<float>& a);
void amax(Exec on, const Amax<bf16>& a);
void hadamard(Exec on, const Hadamard<float>& a);
void hadamard(Exec on, const Hadamard<bf16>& a);
void quantise(Exec on, const Quantise<float>& a);
void quantise(Exec on, const Quantise<bf16>& a);
void dequantise(Exec on, const Dequantise<float>& a);
void dequantise(Exec on, const Dequantise<bf16>& a);
void fake_quantise(Exec on, const FakeQuantise<float>& a);
void fake_quantise(Exec on, const FakeQuantise<bf16>& a);
void router_forward(Exec on, const RouterForward& a);
void router_bias_update(Exec on, const RouterBiasUpdate& a);
void router_margin(Exec on, const RouterMargin& a);
void dispatch(Exec on, const Dispatch& a);
void global_norm(Exec on, const GlobalNorm& a);
void cast_stochastic(Exec on, const CastStochastic& a);
void zero(Exec on, const Zero& a);
void checksum(Exec on, const Checksum& a);

// What Exec::workspace must have where a kernel needs scratch that the op's struct has no field
// for.
int64_t embedding_backward_workspace_bytes(int64_t tokens, int64_t width);

// HeadLoss::scratch for chunks of 8192 rows of T, the size a GPU likes. With
// head_loss_scratch_bytes<T> it works in smaller chunks: it takes as many rows as there is room
// for, and the last bits of dweight follow the number.
int64_t head_loss_chunk_bytes(int64_t tokens, int64_t vocab, int64_t element_bytes);

}  // namespace assay::gpu
