// The one list of parameters. Allocation, initialisation, optimizer groups, checkpoint names and
// the audit are loops over it; nothing tests a parameter by index or by substring.
//
// Weights are (out, in). qkv rows: Hq * D of q, then Hkv * D of k, then Hkv * D of v. gate_up rows:
// F of the gate, then F of the up projection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/view.h"
#include "cuda/exec.h"
#include "engine/config/config.h"
#include "engine/parameter_spec.h"

namespace assay {

// In the order of the forward pass. UserError when a dimension is absurd (beyond 2^30; 2^16
// layers).
std::vector<ParameterSpec> parameter_table(const ModelConfig& config);

// MoE blocks are those from first_dense_layers on.
bool is_moe_block(const ModelConfig& config, int64_t layer);
int64_t moe_blocks(const ModelConfig& config);

// Element i depends on (seed, spec.name, i) alone, so that any backend, thread count or shard gives
// the same bits. `out` holds the spec's elements in row-major order.
void initialise(Exec on, const ParameterSpec& spec, uint64_t seed, View<float, 1> out);

}  // namespace assay
