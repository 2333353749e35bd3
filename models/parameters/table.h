// The only list of a model's parameters. Allocation, initialisation, optimizer groups, checkpoint
// names and the audit loop over it; no code identifies a parameter by index or by substring.
//
// Weights are (out, in). qkv rows: Hq * D of q, then Hkv * D of k, then Hkv * D of v. gate_up rows:
// F of the gate, then F of the up projection.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/view.h"
#include "comm/layout.h"
#include "cuda/exec.h"
#include "engine/config/config.h"
#include "engine/parameter_spec.h"

namespace assay {

// In the order of the forward pass. Throws UserError if a dimension exceeds 2^30, or the layers
// 2^16.
std::vector<ParameterSpec> parameter_table(const ModelConfig& config);

// Whether every gate is 1: K = 1 of several experts, divided by its own sum.
bool has_constant_gates(const MoeConfig& moe);
// Whether an auxiliary loss moves the routers. That of the normalised gates does not with K = 1:
// the only one is 1.
bool has_working_aux(const MoeConfig& moe);

// The table of a rank that has its share of the routed experts, of expert_ranks equal ones.
std::vector<ParameterSpec> parameter_table(const ModelConfig& config, const Layout& layout);

// Writes initial values to `out`, the spec's elements in row-major order. Element i depends only on
// (seed, spec.name, its number in the whole tensor), so every backend, thread count and number of
// expert ranks gives the same bits.
void initialise(Exec on, const ParameterSpec& spec, uint64_t seed, View<float, 1> out);

}  // namespace assay
