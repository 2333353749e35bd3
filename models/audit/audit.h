// Size of a model before anything is allocated: parameters by role, FLOPs, bytes.
//
//   P_active = P_dense + M (C E + 3 C F K) + M 3 C F S
//   P_total  = P_dense + M (C E + 3 C F E) + M 3 C F S
//   FLOPs per token = 6 (active matrix parameters without embedding, with head) + 6 L C_attn T
//
// with M MoE blocks, F = expert_ffn and P_dense = embedding, head, norms, attention, dense FFNs;
// C_attn = heads * head_dim; attention is counted causally, norm weights do no matrix work. The
// parameters are counted twice, from the parameter table and from the formula; a run does not start
// if the counts differ. All integers are exact.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config/config.h"

namespace assay {

struct ParameterCounts {
  int64_t embedding = 0;
  int64_t head = 0;  // 0 when tied
  int64_t norms = 0;
  int64_t attention = 0;
  int64_t dense_ffn = 0;
  int64_t router = 0;
  int64_t routed_experts = 0;
  int64_t routed_active = 0;  // the share K / E of routed_experts that one token uses
  int64_t shared_experts = 0;

  int64_t total() const;
  int64_t active() const { return total() - routed_experts + routed_active; }
  bool operator==(const ParameterCounts&) const = default;
};

ParameterCounts count_from_table(const ModelConfig& config);
ParameterCounts count_from_formula(const ModelConfig& config);

struct Audit {
  ParameterCounts parameters;
  int64_t total = 0;   // P_total
  int64_t active = 0;  // P_active
  int64_t ffn_active_width = 0;
  int64_t flops_per_token = 0;
  int64_t weight_bytes = 0;  // weights that products read, once; recipe auto as on this CPU
  // Separate fp32 masters: 0 with recipe fp32; with optimizer.state bf16 the norms'.
  int64_t master_bytes = 0;
  int64_t gradient_bytes = 0;
  int64_t moment_bytes = 0;
};

// Forward and backward, at the run's sequence length; those of the optimizer are left out. Throws
// UserError if they exceed 63 bits.
int64_t flops_per_token(const Config& config, const ParameterCounts& n);

// Throws UserError if the configuration is invalid (engine/config/check.h) or a count exceeds 63
// bits.
Audit audit(const Config& config);

// tokens * K / E; 0 in a dense model.
int64_t tokens_per_routed_expert(const ModelConfig& config, int64_t tokens);

}  // namespace assay
