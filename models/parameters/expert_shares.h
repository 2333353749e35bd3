// Whether ranks that share the routed experts (parallel.expert_ranks) compute what one rank would.
#pragma once

#include <string>

#include "comm/layout.h"
#include "engine/config/config.h"

namespace assay {

// Why the bits are those of this number of ranks alone: "a rank has more than one micro-batch a
// step". "" if they are those of one rank with as many parts, while every exchange of rows takes
// one round (docs/numerics.md), or if every rank has all experts.
std::string why_own_bits(const Config& config, const Layout& layout);

}  // namespace assay
